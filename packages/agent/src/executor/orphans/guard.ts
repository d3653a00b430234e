import { type ChildProcess, spawn } from "node:child_process";
import type { Writable } from "node:stream";
import { strayMark } from "../child/environment.ts";
import type { ExecutorLog } from "../contract.ts";

/** Sees to it that no process group outlives this agent, however the agent ends. */
export interface Guard {
  /** From now on the group ends with the agent. Resolves when that is certain. */
  watch(groupId: number): Promise<void>;
  /** The group is gone: its number may soon be somebody else's. */
  forget(groupId: number): void;
  close(): Promise<void>;
}

export interface GuardOptions {
  /** Whoever was started below it, and left its group, is ended too. */
  workDirectory: string;
  /** Where the cgroups of the deployments are, if there are any. */
  cgroups: string | undefined;
  /**
   * The open lock of the data directory. The guard holds it as well, so that the next agent starts nothing before this
   * one's children are gone, and the guard does not take the new children for the old ones.
   */
  lockFd: number;
  log(line: ExecutorLog): void;
}

/**
 * A shell that reads, line by line, all groups there are, and kills the last ones it heard of when the agent's end of
 * the pipe closes. A shell, because it must outlive the agent and yet cost little: 1 MB, where Node takes 40.
 *
 * Every line is the whole list. What was written to the pipe is read before its end is seen, so a list counts once
 * the write is done; a half-written line counts as not written, and its child has not been let go. (`kill -s`: what
 * Debian's shell makes of `kill -KILL -- -5` is an error.)
 */
const GUARD = `
trap '' HUP INT TERM
groups=
while read -r list; do groups=$list; done
for group in $groups; do kill -s KILL -- "-$group"; done
if [ -n "$2" ]; then
  for group in "$2"/*/; do
    [ -e "\${group}cgroup.kill" ] && echo 1 >"\${group}cgroup.kill"
    for round in 1 2 3 4 5 6 7 8 9; do
      pids=$(cat "\${group}cgroup.procs")
      [ -n "$pids" ] || break
      for pid in $pids; do kill -s KILL "$pid"; done
      sleep 0.02
    done
    rmdir "$group"
  done
  rmdir "$2"
fi
for file in $(grep -lzsF -e "$1" /proc/[0-9]*/environ); do
  pid=\${file#/proc/}
  kill -s KILL "\${pid%/environ}"
done
`;

/** Throws when there is no shell to be the guard: without one no child is started. */
export function startGuard({ workDirectory, cgroups, lockFd, log }: GuardOptions): Guard {
  const groups = new Set<number>();
  let closing = false;
  let shell = start();
  if (shell.pid === undefined)
    throw new Error("/bin/sh, which ends children with the agent, cannot be started");

  function start(): ChildProcess {
    const values = [strayMark(workDirectory), cgroups ?? ""];
    const started = spawn("/bin/sh", ["-c", GUARD, "tenure-guard", ...values], {
      detached: true, // a Ctrl-C in the agent's terminal is not for the guard
      env: { PATH: "/usr/local/bin:/usr/bin:/bin" },
      cwd: "/",
      stdio: ["pipe", "ignore", "ignore", lockFd],
    });
    started.stdin?.on("error", () => {}); // a write to a dead guard; `exit` replaces it
    started.once("error", () => onEnd(started));
    started.once("exit", () => onEnd(started));
    // The guard alone must not keep the agent from ending.
    started.unref();
    return started;
  }

  function onEnd(ended: ChildProcess): void {
    if (closing || ended !== shell) return;
    log({
      level: "error",
      event: "guard.lost",
      message:
        "the process that ends children with the agent was killed; another one takes its place",
    });
    setTimeout(replace, REPLACE_AFTER_MS).unref();
  }

  function replace(): void {
    if (closing) return;
    shell = start();
    void tell().catch(() => {}); // it died at once; its own end replaces it
  }

  function tell(): Promise<void> {
    const stdin = shell.stdin as Writable;
    return new Promise((resolve, reject) => {
      stdin.write(`${[...groups].join(" ")}\n`, (error) => (error ? reject(error) : resolve()));
    });
  }

  return {
    async watch(groupId) {
      groups.add(groupId);
      await tell();
    },
    forget(groupId) {
      groups.delete(groupId);
      void tell().catch(() => {});
    },
    async close() {
      closing = true;
      const ended = shell;
      if (ended.pid === undefined || ended.exitCode !== null || ended.signalCode !== null) return;
      ended.ref();
      await new Promise((resolve) => {
        ended.once("exit", resolve);
        ended.stdin?.end();
      });
    },
  };
}

const REPLACE_AFTER_MS = 200;
