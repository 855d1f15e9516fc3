# Runs a program with each fault, or those in FAULTS, and prints how it ends and what the sanitizer found.
program=$1
shift
for fault in ${FAULTS:-none overflow leak after-free twice race shift}; do
    timeout 50 "$@" "$program" $fault > out 2> err
    echo "$fault: $?" $(cat out)
    grep -oE '(ERROR|WARNING|SUMMARY): [A-Za-z]+: [a-z0-9 -]+|runtime error: [a-z ]+|Invalid (read|write|free)|definitely lost: [0-9,]+' err |
        sed -E 's/ (on|at|in|for|by|pid|of) .*//; s/0x[0-9a-f]+.*//; s/ +$//' | sort -u
    grep -E '^superpage: ' err >&2
done
true
