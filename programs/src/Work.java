/** Objects of every age, large arrays, memory outside the heap, threads, and a child. */
import java.util.*;
import java.util.stream.*;

public class Work {
    public static void main(String[] arguments) throws Exception {
        Map<Integer, String> map = new HashMap<>();
        for (int i = 0; i < 500_000; i++) map.put(i, "x".repeat(i % 40));
        for (int i = 0; i < 500_000; i++) if (i % 3 != 0) map.remove(i);
        System.gc();
        System.out.println(map.values().stream().mapToInt(String::length).sum());
        long sum = 0;
        for (int round = 0; round < 60; round++) { int[] large = new int[4 << 20]; large[round] = round; sum += large[round]; }
        System.out.println(sum);
        var direct = new ArrayList<java.nio.ByteBuffer>();
        for (int i = 0; i < 20; i++) { var b = java.nio.ByteBuffer.allocateDirect(4 << 20); b.put(5, (byte) i); direct.add(b); }
        System.out.println(direct.stream().mapToInt(b -> b.get(5)).sum());
        System.out.println(IntStream.range(0, 2_000_000).parallel().mapToObj(Integer::toString).mapToInt(String::length).sum());
        var threads = IntStream.range(0, 50).mapToObj(n -> new Thread(() -> new ArrayList<>(Collections.nCopies(10_000, n)))).toList();
        threads.forEach(Thread::start);
        for (var thread : threads) thread.join();
        try { deep(0); } catch (StackOverflowError e) { System.out.println("stack overflow"); }
        try { String none = arguments.length > 9 ? "" : null; none.length(); } catch (NullPointerException e) { System.out.println("null"); }
        System.out.println(new String(new ProcessBuilder("echo", "child").start().getInputStream().readAllBytes()).trim());
        System.exit(8);
    }
    static int deep(int n) { return deep(n + 1) + 1; }
}
