(* A stack that overflows again and again, until a line comes: most of the time it is
   used up, or being used up. *)
let rec deep n = if n land 1 = 0 then 1 + deep (n + 1) else 2 + other (n + 1)
and other n = 3 + deep n

let again = ref true
let stops _ = again := false

let () =
  ignore (Sys.signal Sys.sigusr1 (Sys.Signal_handle stops));
  print_endline "ready";
  ignore (input_line stdin);
  let caught = ref 0 in
  while !again do
    try ignore (deep 0) with Stack_overflow -> incr caught
  done;
  print_endline (if !caught > 0 then "done" else "none");
  ignore (input_line stdin);
  exit 7
