package cli

const graphLong = `Shows calls as a tree, in the layout of the kernel's function_graph tracer. The
calls are those of a running process, of a command, or of a recording (kprobe
record --calls):

  CPU)  TASK-TID  | DURATION |  CALLER() {
  CPU)  TASK-TID  | DURATION |    CALLED();
  CPU)  TASK-TID  | DURATION |  }

Every function that is named, or that a pattern matches, gets a probe at its
entry and one at its return. Other functions do not appear. A function that
several definitions name is probed once: for the definition that is not a
pattern, else for the first.

Without definitions, it shows what detached probes (kprobe trace --detach
--calls) have recorded: of a process (-p PID), of a file of --keep, or of a core
dump. GLOBs choose the functions of a file.

# TREES
DURATION is wall time. A mark before it says that the call was long: + for more
than 10 us, ! 100 us, # 1 ms, * 10 ms, @ 100 ms, $ 1 s.

Definitions (p FUNC ARG…, j FUNC) put their arguments in the parentheses. --args
records the arguments of every function, and its result, which follows the call.
Both have their types where there is debug information. A function that returns
nothing has no result.

A call that never returned, because of longjmp, an exception or lost hits, ends
where that is noticed, and says so. So do calls that have not returned at the
end. Calls of Go functions nest by goroutine, whichever thread it runs on.

# CHOOSING TREES
--auto leaves out functions that make up more than half of the hits, and names
them. It helps where a function of some nanoseconds is called all the time.

--slower TIME and --failed choose trees by their root: a call without a shown
caller, or a call of --below. The whole tree of such a call is shown, at most
32768 lines of it. A call has failed if it returned a number from -4095 to -1 or
a null pointer, or was left by an exception. --failed FILTER defines failure by
$retval, $duration and the names of values at the return.

# HANGING PROCESSES
--now shows what every thread is inside of at this moment. It needs no probe and
stops nothing.

Stacks are read from copies; those of running threads are sampled. A ? marks
calls that were found by scanning the stack, and may be wrong. The time beside a
system call is how long the thread has not run. The time beside a function is
how long ago a return probe of another kprobe saw it begin, for example of a
kprobe graph that is running. Goroutines of Go programs follow. -q leaves out
source lines.`

const graphExample = `  kprobe graph -p 4711 'handle_*' 'db_*'
  kprobe graph -p 4711 --slower 10ms 'handle_*' 'db_*'
  kprobe graph -p 4711 --failed '$retval < 0 && $duration > 1ms' 'db_*'
  kprobe graph --args --failed --below main 'j open_config' 'read_*' -- ./server
  kprobe graph web.kprobe --slower 10ms
  kprobe graph 'db_*' core.4711
  kprobe graph --now -p 4711`
