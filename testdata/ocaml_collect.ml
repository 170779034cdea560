(* A program whose collector walks the stack while calls are under way. *)
let rec build n = if n = 0 then [] else let s = string_of_int n in s :: build (n - 1)

let fold l = List.fold_left (fun a s -> a + String.length s) 0 (List.sort compare l)

let table l =
  let h = Hashtbl.create 8 in
  List.iter (fun s -> Hashtbl.replace h s (String.length s)) l;
  Hashtbl.fold (fun _ n a -> a + n) h 0

let rec deep n = if n = 0 then (Gc.full_major (); 0) else 1 + deep (n - 1)

let () =
  print_endline "ready";
  ignore (input_line stdin);
  let sum = ref 0 in
  for i = 1 to 12 do
    let l = build (200 + i) in
    sum := !sum + fold l + table l + deep 50
  done;
  Printf.printf "done %d\n%!" !sum;
  ignore (input_line stdin);
  exit 7
