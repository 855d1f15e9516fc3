# Starts the program, waits until it is up, runs the commands that are given with $pid, and lets it end.
marked=$1
commands=$2
$SP "$marked" > out &
for _ in $(seq 300); do [ -e pid ] && break; sleep 0.1; done
pid=$(cat pid)
eval "$commands"
touch stop
wait $!
code=$?
cat out
echo "exit code $code"
