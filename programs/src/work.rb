# Garbage collection with compaction, threads, a child, and large strings.
data = (1..250_000).map { |i| "value #{i}" * (i % 5) }
puts data.sum(&:length)
data = data.each_slice(2).map(&:first)
GC.start
GC.compact if GC.respond_to?(:compact)
puts data.sum(&:length)
threads = 4.times.map { |t| Thread.new { (1..40_000).map { |i| [i, t].hash; i.to_s }.join.length } }
puts threads.map(&:value).inspect
big = "x" * 80_000_000
big << "y"
puts big.length, big.count("y")
pid = fork { exit((1..100_000).map { |i| "c#{i}" }.uniq.length == 100_000 ? 7 : 1) }
Process.wait(pid)
puts $?.exitstatus
puts IO.popen(["ruby", "-e", "puts 'z' * 1000"]).read.length
