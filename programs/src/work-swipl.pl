% Stacks that grow and are moved, the collectors of atoms and of clauses, threads, exhausted resources, a child.
:- use_module(library(process)).
count(0, []) :- !.
count(N, [N|T]) :- M is N - 1, count(M, T).
deep(N) :- M is N + 1, deep(M), true.
endless(N) :- M is N + 1, endless(M), atom(a).
main :-
    count(700000, L), sum_list(L, S), format("list ~d~n", [S]),
    forall(between(1, 100000, N), (atom_concat(atom_number_, N, A), assertz(fact(A, N)))),
    garbage_collect_atoms, garbage_collect, aggregate_all(sum(N), fact(_, N), Sum), format("facts ~d~n", [Sum]),
    retractall(fact(_, _)), garbage_collect_clauses,
    findall(Id, (between(1, 8, K), thread_create(worker(K), Id)), Ids),
    maplist([I, R]>>thread_join(I, R), Ids, Rs), format("threads ~w~n", [Rs]),
    concurrent_maplist([X, Y]>>(numlist(1, 100000, Z), sum_list(Z, W), Y is W + X), [1, 2, 3, 4], Ys), format("concurrent ~w~n", [Ys]),
    catch(endless(0), error(resource_error(What), _), format("exhausted ~w~n", [What])),
    X1 is 7 ** 200000 mod 1000000007, format("bignum ~d~n", [X1]),
    process_create(path(sh), ['-c', 'exit 3'], [process(Pid)]), process_wait(Pid, Status), format("child ~w~n", [Status]),
    length(Big, 300000), maplist(=(x), Big), msort(Big, Sorted), length(Sorted, Len), format("sorted ~d~n", [Len]).
worker(K) :- count(200000, L), sum_list(L, S), R is S + K, nb_setval(result, R), thread_self(_), R > 0.
