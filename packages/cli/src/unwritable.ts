import type { Context } from "./context.ts";

/** 128 + SIGPIPE: how a shell shows the end of a program that wrote to a pipe without a reader. */
const BROKEN_PIPE_EXIT_CODE = 141;

/** Ends a command whose output cannot be written, and lets a server or a node-unit go on without it. */
export function handleUnwritableOutput(context: Context): void {
  process.stderr.on("error", () => {});
  process.stdout.on("error", ({ code, message }: NodeJS.ErrnoException) => {
    if (context.keepsRunning) return;
    if (code === "EPIPE") process.exit(BROKEN_PIPE_EXIT_CODE);
    process.stderr.write(`could not write the output: ${message}\n`);
    process.exit(1);
  });
}
