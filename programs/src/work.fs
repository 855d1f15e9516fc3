\ Allocated memory, large stacks, faults that become exceptions, a child.
: fill-it ( addr n -- ) 0 do dup i cells + i swap ! loop drop ;
: sum-it ( addr n -- sum ) 0 swap 0 do over i cells + @ + loop nip ;
10000000 cells allocate throw constant big
big 10000000 fill-it big 10000000 sum-it . cr
big 20000000 cells resize throw constant bigger
bigger 10000000 sum-it . cr bigger free throw
: deep recurse 1 ;
' deep catch . cr
: fault 0 @ ; ' fault catch . cr
: divide 1 0 / ; ' divide catch . cr
: write-low 1 8 ! ; ' write-low catch . cr
: fib dup 2 < if drop 1 else dup 1- recurse swap 2 - recurse + then ;
27 fib . cr
s" exit 3" system $? . cr
variable seen : many 1000 0 do 65536 allocate throw dup 65536 i fill c@ seen +! loop ; many seen @ . cr
bye
