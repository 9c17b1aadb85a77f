//go:build tools

// Package tools names the program that is built, so that its modules are in go.sum.
package tools

import _ "github.com/birdayz/kaf/cmd/kaf"
