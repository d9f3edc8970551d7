"""The EC connector that runs inside vLLM. Stands alone: it imports nothing of the operator, vLLM only where it must.

Delivered to engines as the package `epd_connector`, so its modules import each other relatively.
"""
