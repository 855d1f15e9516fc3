%% Processes with heaps of their own, large binaries that they share, tables outside the heaps, and a port.
-module(work).
-export([main/0]).
main() ->
    Self = self(),
    [spawn(fun() -> L = lists:seq(1, 1000 + N), Self ! {N, lists:sum(L)} end) || N <- lists:seq(1, 2000)],
    io:format("~p~n", [lists:sum([receive {N, S} -> S end || N <- lists:seq(1, 2000)])]),
    T = ets:new(t, [set, public]),
    [ets:insert(T, {I, integer_to_binary(I)}) || I <- lists:seq(1, 500000)],
    [ets:delete(T, I) || I <- lists:seq(1, 500000), I rem 3 =/= 0],
    io:format("~p~n", [ets:info(T, size)]),
    B = binary:copy(<<"abcdefgh">>, 10000000),
    io:format("~p ~p~n", [byte_size(B), erlang:crc32(B)]),
    Bs = [binary:copy(<<N>>, 1000000) || N <- lists:seq(1, 100)],
    io:format("~p~n", [erlang:crc32(Bs)]),
    erlang:garbage_collect(),
    io:format("~s", [os:cmd("echo child")]),
    halt(3).
