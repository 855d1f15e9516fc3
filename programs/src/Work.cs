// Mono's collector stops threads by signals; null references are faults that it handles.
using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.IO.MemoryMappedFiles;
using System.Linq;
using System.Threading;
using System.Threading.Tasks;

class Work {
    class Node { public Node next; public byte[] data; }
    static int Null() { try { Node n = null; return n.data.Length; } catch (NullReferenceException) { return -1; } }
    static void Main() {
        var table = new Dictionary<string, int[]>();
        for (int n = 0; n < 200000; n++) table["key" + n] = new[] { n, n * 2 };
        Console.WriteLine("table " + table.Values.Sum(v => (long)v[1]));
        long total = 0;
        var threads = Enumerable.Range(0, 4).Select(k => new Thread(() => {
            Node list = null;
            for (int n = 0; n < 30000; n++) list = new Node { next = n % 100 == 0 ? null : list, data = new byte[n % 512] };
            long sum = 0;
            for (; list != null; list = list.next) sum += list.data.Length;
            Interlocked.Add(ref total, sum);
        })).ToList();
        threads.ForEach(t => t.Start());
        for (int n = 0; n < 10; n++) GC.Collect();
        threads.ForEach(t => t.Join());
        Console.WriteLine("threads " + total);
        var large = new List<byte[]>();
        for (int n = 0; n < 20; n++) { large.Add(new byte[10000000]); large[n][n * 1000] = (byte)n; }
        GC.Collect(2, GCCollectionMode.Forced, true);
        Console.WriteLine("large " + large.Select((b, n) => (int)b[n * 1000]).Sum());
        Console.WriteLine("null " + Null());
        int zero = large.Count - 20;
        try { Console.WriteLine(1 / zero); } catch (DivideByZeroException) { Console.WriteLine("zero"); }
        Console.WriteLine("parallel " + Enumerable.Range(1, 1000000).AsParallel().Sum(x => (long)x));
        using (var map = MemoryMappedFile.CreateFromFile("mapped", System.IO.FileMode.Create, null, 50000000)) using (var view = map.CreateViewAccessor()) {
            view.Write(40000000, 77); Console.WriteLine("mapped " + view.ReadInt32(40000000));
        }
        var tasks = Enumerable.Range(0, 50).Select(k => Task.Run(() => Enumerable.Range(0, 10000).Select(x => x.ToString()).Count())).ToArray();
        Task.WaitAll(tasks);
        Console.WriteLine("tasks " + tasks.Sum(t => t.Result));
        var child = Process.Start(new ProcessStartInfo("/bin/sh", "-c \"exit 3\"") { UseShellExecute = false });
        child.WaitForExit();
        Console.WriteLine("child " + child.ExitCode);
    }
}
