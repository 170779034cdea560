(* Deep recursion that overflows the stack, caught as an exception, again and again. *)
let rec deep n = if n land 1 = 0 then 1 + deep (n + 1) else 2 + other (n + 1)
and other n = 3 + deep n

let rounds = 5

let () =
  print_endline "ready";
  ignore (input_line stdin);
  let caught = ref 0 in
  for _ = 1 to rounds do
    try ignore (deep 0) with Stack_overflow -> incr caught
  done;
  Printf.printf "done %d\n%!" !caught;
  ignore (input_line stdin);
  exit 7
