-- Tables, strings, closures, coroutines, and the collector in both of its modes.
local t = {}
for i = 1, 100000 do t[i] = { i, "s" .. i } end
local sum = 0
for i = 1, #t, 3 do sum = sum + #t[i][2]; t[i] = false end
collectgarbage()
print(sum)
if _VERSION == "Lua 5.4" then collectgarbage("generational") end
local parts = {}
for i = 1, 100000 do parts[#parts + 1] = ("%d,"):format(i) end
local text = table.concat(parts)
print(#text, select(2, text:gsub("9,", "")))
local co = coroutine.wrap(function() for i = 1, 100000 do coroutine.yield({ i }) end end)
local n = 0
for _ = 1, 100000 do n = n + co()[1] end
print(n)
local big = ("x"):rep(60000000) .. "y"
print(#big)
local p = io.popen("echo child")
print(p:read("a"))
p:close()
