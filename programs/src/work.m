% Matrices through BLAS with its threads, cells, sorting, sparse matrices, an allocation that fails, a child.
rand ("seed", 7);
a = reshape (mod ((1:1000000) * 7919, 1009), 1000, 1000);
printf ("product %d\n", trace (a * a'));
b = a(1:300, 1:300) + 5000 * eye (300);
printf ("solved %.6f\n", norm (b * (b \ ones (300, 1)) - 1) < 1e-8);
c = cell (1, 20000); for k = 1:20000 c{k} = sprintf ("%d", k); endfor
printf ("cells %d\n", numel (unique (c)));
s = sort (mod ((1:3000000) * 7919, 3000017)); printf ("sorted %d\n", sum (s(1:1000)));
sp = sparse (1:20000, mod ((1:20000) * 7, 20000) + 1, 1); printf ("sparse %d\n", nnz (sp * sp));
for k = 1:20 x = zeros (1000, 1000); x(k, k) = k; y{k} = x; endfor; clear y
try z = zeros (1e9, 1e9); catch e, printf ("too large\n"); end
printf ("fft %.4f\n", abs (sum (fft (1:1048576)(1:10))) / 1e12);
f = @(n) n; function r = deep (n) r = deep (n + 1); endfunction
try deep (1); catch printf ("deep\n"); end
[status, text] = system ("echo child; exit 3"); printf ("%d %s", status, text);
