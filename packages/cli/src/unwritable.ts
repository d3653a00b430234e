import type { Context } from "./context.ts";

/** 128 + SIGPIPE, as a shell reports it. */
const BROKEN_PIPE_EXIT_CODE = 141;

/** Exits when the output cannot be written. A server or a node-unit continues without output. */
export function handleUnwritableOutput(context: Context): void {
  process.stderr.on("error", () => {});
  process.stdout.on("error", ({ code, message }: NodeJS.ErrnoException) => {
    if (context.keepsRunning) return;
    if (code === "EPIPE") process.exit(BROKEN_PIPE_EXIT_CODE);
    process.stderr.write(`could not write the output: ${message}\n`);
    process.exit(1);
  });
}
