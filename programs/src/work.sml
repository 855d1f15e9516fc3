(* Lists and arrays on a heap that is collected by threads, threads, a stack that grows, signals, a child. *)
fun make 0 acc = acc | make n acc = make (n - 1) (n :: acc);
val list = make 2000000 [];
val () = print ("list " ^ Int.toString (List.foldl (op +) 0 list) ^ "\n");
val () = PolyML.fullGC ();
val array = Array.tabulate (5000000, fn n => n mod 97);
val () = print ("array " ^ Int.toString (Array.foldl (op +) 0 array) ^ "\n");
fun deep 0 = 0 | deep n = 1 + deep (n - 1);
val () = print ("deep " ^ Int.toString (deep 5000000) ^ "\n");
fun power (b, 0) = 1 | power (b, n) = b * power (b, n - 1);
val () = print ("bignum " ^ IntInf.toString (IntInf.pow (3, 100000) mod 1000000007) ^ "\n");
val lock = Thread.Mutex.mutex ();
val total = ref 0;
val left = ref 4;
fun work () =
    let val s = List.foldl (op +) 0 (make 300000 [])
    in Thread.Mutex.lock lock; total := !total + s; left := !left - 1; Thread.Mutex.unlock lock end;
val _ = List.tabulate (4, fn _ => Thread.Thread.fork (work, []));
fun wait () = if (Thread.Mutex.lock lock; let val l = !left in Thread.Mutex.unlock lock; l end) = 0 then () else (OS.Process.sleep (Time.fromMilliseconds 10); wait ());
val () = wait ();
val () = print ("threads " ^ Int.toString (!total) ^ "\n");
val () = PolyML.shareCommonData list;
val () = print ("shared " ^ Int.toString (length list) ^ "\n");
val () = print ("child " ^ (if OS.Process.isSuccess (OS.Process.system "true") then "true" else "false") ^ "\n");
val () = print ("zero " ^ ((Int.toString (1 div 0)) handle Div => "Div") ^ "\n");
val () = OS.Process.exit OS.Process.success;
