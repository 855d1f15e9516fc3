# Hashes, strings, sorting, a regular expression over a large text, and children by fork and by a pipe.
use strict;
use warnings;
my %seen;
$seen{"key$_"} = "value" x ($_ % 50) for 1 .. 60_000;
delete $seen{"key$_"} for grep { $_ % 3 } 1 .. 60_000;
my $bytes = 0;
$bytes += length for values %seen;
print scalar(keys %seen), " keys, $bytes bytes\n";
my @sorted = sort { $a <=> $b } map { ($_ * 7919) % 1_000_003 } 1 .. 200_000;
print "$sorted[0] $sorted[-1]\n";
my $text = "abc def " x 500_000;
my $count = () = $text =~ /def/g;
print "$count matches\n";
for my $child (1 .. 4) {
    my $pid = fork // die;
    if (!$pid) { my @own = map { "x" x 1000 } 1 .. 5_000; exit(@own == 5_000 ? $child : 99); }
    waitpid $pid, 0;
    print "child ended with ", $? >> 8, "\n";
}
open(my $pipe, "-|", "perl", "-e", 'print scalar(reverse "x" . "y" x 10_000_000)') or die;
my $line = <$pipe>;
print length($line), " bytes from a pipe\n";
