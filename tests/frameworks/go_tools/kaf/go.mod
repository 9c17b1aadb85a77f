module barnabas/tests/frameworks/kaf

go 1.21

require github.com/birdayz/kaf v0.2.3
