default(parisizemax, 8000000000);
print("factor ", factor(2^128 + 1));
v = vector(500000, n, n^3 + 1); print("vector ", sum(n = 1, #v, v[n]));
print("precision ", { my(p = 20000); localprec(p); floor(frac(Pi * 10^15000) * 10^20) });
M = matrix(150, 150, i, j, (i * j + i^2) % 101 + (i == j)); print("det ", matdet(M) % 1000003);
print("deep ", iferr(my(f = (n) -> 1 + f(n + 1)); f(1), E, "error"));
print("stack ", iferr(vector(10^10), E, errname(E)));
print("par ", vecsum(parvector(8, n, #factor(2^(60 + n) - 1)~)));
print("class ", quadclassunit(-10^20 - 3).no);
