import { spawnSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { descendantsOf, signal } from "@tenure/testing/processes/proc";
import { startProcess } from "@tenure/testing/processes/process";
import { repositoryRoot } from "@tenure/testing/repository";
import { scratchDirectory } from "@tenure/testing/scratch";
import { until } from "@tenure/testing/until";
import { expect, test } from "vitest";

const UNSHARE = ["--pid", "--fork", "--mount-proc", "--kill-child"];
const ORPHANS = 5;
/** Leaves orphans that end in a moment, then becomes the program that is given. */
const SCRIPT = `for n in $(seq ${ORPHANS}); do (sleep 0.3 &); done; exec "$@"`;

// Not every machine lets a test make a PID namespace; where it does not, there is no test.
if (spawnSync("unshare", [...UNSHARE, "true"]).status === 0)
  test.each(
    ["dash", "bash"].filter((shell) => spawnSync(shell, ["-c", ":"]).status === 0),
  )("an agent as process 1, under %s, leaves no zombies and ends with 0", async (shell) => {
    const tenure = join(repositoryRoot, "packages/cli/bin/tenure");
    const unit = startProcess({
      command: "unshare",
      args: [...UNSHARE, "sh", "-c", SCRIPT, "sh", shell, tenure, "node", "run"],
      env: {
        HOST_URL: "http://127.0.0.1:9", // nothing listens there; it keeps trying
        NODE_UNIT_DATA_DIR: scratchDirectory("unit"),
      },
    });
    await unit.waitForLine(/"event":"connection.lost"/);
    const [init] = descendantsOf(unit.pid);
    const orphans = () => namesOfChildren(init!).filter((name) => name === "sleep");
    await until(() => orphans().length === 0, { what: "process 1 to collect them" });
    signal(init!, "SIGTERM");
    expect(await unit.exited).toEqual({ code: 0, signal: null });
  });

/** Zombies too. */
function namesOfChildren(parent: number): string[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .flatMap((pid) => {
      const text = statOf(pid);
      const [, parentPid] = text.slice(text.lastIndexOf(")") + 2).split(" ");
      const name = text.slice(text.indexOf("(") + 1, text.lastIndexOf(")"));
      return Number(parentPid) === parent ? [name] : [];
    });
}

function statOf(pid: string): string {
  try {
    return readFileSync(`/proc/${pid}/stat`, "utf8");
  } catch {
    return "";
  }
}
