// Threads that compute, allocate and check; prints its process id first and
// ends with status 0 when standard input closes.
public class Load {
	static volatile boolean stop;

	static long work(int n) {
		StringBuilder b = new StringBuilder();
		for (int i = 0; i < 2000; i++) {
			b.append(i * n);
		}
		return b.toString().hashCode();
	}

	public static void main(String[] args) throws Exception {
		Thread[] ts = new Thread[3];
		for (int i = 0; i < ts.length; i++) {
			final int n = i;
			final long want = work(n);
			ts[i] = new Thread(() -> {
				while (!stop) {
					if (work(n) != want) {
						Runtime.getRuntime().halt(1);
					}
				}
			});
			ts[i].start();
		}
		System.out.println(ProcessHandle.current().pid());
		while (System.in.read() >= 0) {
		}
		stop = true;
		for (Thread t : ts) {
			t.join();
		}
	}
}
