"""The source of pipelines' streaming queries: planned in the process that started them, for all of them together."""
