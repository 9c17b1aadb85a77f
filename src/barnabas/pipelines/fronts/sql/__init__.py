"""SQL on streams: the language of ksqlDB as a front of the pipelines' plan.

`grammar` makes statements (`statements`) of text, `catalog` knows the streams and tables that statements have declared,
`planning` makes a pipeline of a query, with `expressions` and `functions` for what is computed. Nothing here does I/O.
"""
