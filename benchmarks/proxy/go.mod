module epd.dev/benchmarks/proxy

go 1.22
