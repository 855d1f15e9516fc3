<?php
// Arrays, JSON, regular expressions (a library with its own allocator), sorting, streams and a child.
ini_set('memory_limit', '1G');
$rows = [];
for ($i = 0; $i < 120000; $i++) { $rows["key$i"] = ['n' => $i, 's' => str_repeat('s', $i % 40)]; }
$text = json_encode($rows);
echo strlen($text), " ", count(json_decode($text, true)), "\n";
echo preg_match_all('/key(\d+)/', $text), "\n";
usort($rows, fn($a, $b) => $b['n'] <=> $a['n']);
echo $rows[0]['n'], "\n";
echo strlen(gzuncompress(gzcompress($text))), "\n";
echo md5(serialize($rows)), "\n";
$h = fopen('php://temp/maxmemory:1000', 'w+');
for ($i = 0; $i < 20000; $i++) { fwrite($h, str_repeat('t', 1000)); }
echo ftell($h), "\n";
echo shell_exec(PHP_BINARY . ' -r "echo strlen(str_repeat(chr(97), 50000000));"'), "\n";
