(* OCaml's minor and major heaps, compaction, Bigarrays outside of them, a stack overflow, and a child. *)
let () =
  let t = Hashtbl.create 16 in
  for i = 1 to 500_000 do Hashtbl.replace t i (String.make (i mod 40) 'x') done;
  for i = 1 to 500_000 do if i mod 3 <> 0 then Hashtbl.remove t i done;
  Gc.compact ();
  Printf.printf "%d\n%!" (Hashtbl.fold (fun _ s n -> n + String.length s) t 0);
  let a = Bigarray.Array1.create Bigarray.int Bigarray.c_layout 20_000_000 in
  Bigarray.Array1.fill a 3;
  Printf.printf "%d\n%!" a.{19_999_999};
  let rec deep n = if n = 0 then 0 else 1 + deep (n - 1) in
  (match deep 100_000_000 with
   | n -> Printf.printf "%d\n%!" n
   | exception Stack_overflow -> print_endline "stack overflow");
  let l = List.init 1_000_000 (fun i -> (i * 7919) mod 1_000_003) in
  Printf.printf "%d\n%!" (List.nth (List.sort compare l) 500_000);
  flush stdout;
  exit (Sys.command "echo child; exit 6")
