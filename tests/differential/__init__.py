"""The same odd but legal requests to Apache Kafka and to Barnabas, and every difference in what they answer.

    python -m tests.differential                    both brokers are started, all APIs and versions are asked
    python -m tests.differential --api Metadata --seed 7 --cases 200
    python -m tests.differential --kafka HOST:PORT --ours HOST:PORT

Differences that are meant to be are listed in accepted.json with their reason; docs/differences.md explains them to users.
"""
