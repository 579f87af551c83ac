import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs the main methods of Apache Kafka's tools one after another in one JVM, because a JVM start costs more than the
 * tool. Each run has its own stdin, stdout and stderr; exit() ends the run, not the JVM: Kafka's own Exit has procedures
 * for that, a security manager catches System.exit, and the JVM's own shutdown hooks run at the end of their run.
 *
 * Request:  int argc, argc x bytes (main class first), bytes stdin. Response: int exit code, bytes stdout, bytes stderr.
 * "bytes" = int length + that many bytes.
 */
public final class ToolServer {
    /** An Error, so that a tool's `catch (Exception)` lets it through. */
    private static final class Exited extends Error {
        Exited() {
            super("exit", null, false, false);
        }
    }

    /** One run. After exit() the tool's own thread is deaf and mute: a tool that catches Throwable prints nothing. */
    private static final class Run {
        private final ByteArrayOutputStream out = new ByteArrayOutputStream();
        private final ByteArrayOutputStream err = new ByteArrayOutputStream();
        private final List<Runnable> hooks = new ArrayList<>();
        private Integer exitCode;
        private Thread thread;

        private synchronized void exit(int code, String message) {
            if (exitCode == null) {
                exitCode = code;
            }
            throw new Exited();
        }

        private synchronized boolean silenced() {
            return exitCode != null && Thread.currentThread() == thread;
        }

        private PrintStream capture(ByteArrayOutputStream target) {
            OutputStream stream = new OutputStream() {
                @Override
                public void write(int b) {
                    if (!silenced()) {
                        target.write(b);
                    }
                }

                @Override
                public void write(byte[] b, int off, int len) {
                    if (!silenced()) {
                        target.write(b, off, len);
                    }
                }
            };
            return new PrintStream(stream, true, StandardCharsets.UTF_8);
        }

        private void call(String mainClass, String[] args) {
            try {
                Class.forName(mainClass).getMethod("main", String[].class).invoke(null, (Object) args);
            } catch (InvocationTargetException e) {
                if (!(e.getCause() instanceof Exited)) {
                    e.getCause().printStackTrace();
                    setFailed();
                }
            } catch (ReflectiveOperationException e) {
                e.printStackTrace();
                setFailed();
            }
        }

        private synchronized void setFailed() {
            if (exitCode == null) {
                exitCode = 1;
            }
        }

        int run(String mainClass, String[] args, byte[] input) throws InterruptedException {
            System.setIn(new ByteArrayInputStream(input));
            System.setOut(capture(out));
            System.setErr(capture(err));
            Exit.setExitProcedure(this::exit);
            Exit.setHaltProcedure(this::exit);
            Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
            thread = new Thread(() -> call(mainClass, args), "tool");
            thread.start();
            thread.join();
            for (Runnable hook : new ArrayList<>(hooks)) {
                Thread runner = new Thread(hook, "hook");
                runner.setDaemon(true);
                runner.start();
                runner.join(10_000);
            }
            for (Thread hook : takeShutdownHooks()) {
                hook.start();
                hook.join(10_000);
            }
            System.out.flush();
            System.err.flush();
            return exitCode == null ? 0 : exitCode;
        }
    }

    /** What Runtime.addShutdownHook was given; needs --add-opens java.base/java.lang=ALL-UNNAMED. */
    @SuppressWarnings("unchecked")
    private static List<Thread> takeShutdownHooks() {
        try {
            Field field = Class.forName("java.lang.ApplicationShutdownHooks").getDeclaredField("hooks");
            field.setAccessible(true);
            Map<Thread, Thread> hooks = (Map<Thread, Thread>) field.get(null);
            List<Thread> taken = new ArrayList<>(hooks.keySet());
            hooks.clear();
            return taken;
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(e);
        }
    }

    private static volatile Run current;
    private static volatile boolean ending;

    /** Allows everything but the end of this JVM. */
    @SuppressWarnings("removal")
    private static final class StaysAlive extends SecurityManager {
        @Override
        public void checkExit(int status) {
            if (!ending && current != null) {
                current.exit(status, "System.exit");
            }
        }

        @Override
        public void checkPermission(java.security.Permission permission) {
        }

        @Override
        public void checkPermission(java.security.Permission permission, Object context) {
        }
    }

    private static byte[] readBytes(DataInputStream in) throws IOException {
        byte[] bytes = new byte[in.readInt()];
        in.readFully(bytes);
        return bytes;
    }

    private static void writeBytes(DataOutputStream out, byte[] bytes) throws IOException {
        out.writeInt(bytes.length);
        out.write(bytes);
    }

    @SuppressWarnings("removal")
    public static void main(String[] unused) throws IOException, InterruptedException {
        DataInputStream in = new DataInputStream(System.in);
        DataOutputStream out = new DataOutputStream(System.out);
        System.setSecurityManager(new StaysAlive());
        takeShutdownHooks();
        while (true) {
            int argc;
            try {
                argc = in.readInt();
            } catch (EOFException e) {
                ending = true;
                Runtime.getRuntime().halt(0);
                return;
            }
            String[] words = new String[argc];
            for (int i = 0; i < argc; i++) {
                words[i] = new String(readBytes(in), StandardCharsets.UTF_8);
            }
            byte[] input = readBytes(in);
            String[] args = new String[argc - 1];
            System.arraycopy(words, 1, args, 0, argc - 1);
            Run run = new Run();
            current = run;
            int code = run.run(words[0], args, input);
            out.writeInt(code);
            writeBytes(out, run.out.toByteArray());
            writeBytes(out, run.err.toByteArray());
            out.flush();
        }
    }
}
