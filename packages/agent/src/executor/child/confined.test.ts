import {
  chmodSync,
  chownSync,
  mkdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { scratchDirectory } from "@tenure/testing/scratch";
import { describe, expect, onTestFinished, test } from "vitest";
import { aRow, startExecutor, wanted } from "../../../testing/executor-fixture.ts";
import { chownDirectory, createOwners } from "../data-directory/owners.ts";

const isRoot = process.getuid?.() === 0;

/** A directory that other users may enter, with a wrapper in it that forks, as bubblewrap does. */
function openPlace(): { dataDir: string; wrapper: string } {
  const directory = scratchDirectory("confined");
  chmodSync(directory, 0o755);
  const wrapper = join(directory, "wrapper.sh");
  const script =
    '#!/bin/sh\necho "wrapped by $1 ($LD_PRELOAD$PATH_SEEN)" >&2; shift\n"$@" & wait $!\n';
  writeFileSync(wrapper, script, { mode: 0o755 });
  return { dataDir: join(directory, "node"), wrapper };
}

describe("a wrapper", () => {
  test("passes on exit code, variables and signals; the deployment's variables do not apply to the wrapper", async () => {
    const { dataDir, wrapper } = openPlace();
    const node = await startExecutor({ dataDir, wrapper: [wrapper, "{work_dir}"] });
    const env = {
      LD_PRELOAD: "/nowhere.so",
      PATH_SEEN: "leaked",
      SAID: `it's "all" $HOME\nhere`,
      n: "9",
    };
    const command = `printf '%s|' "$SAID" "$n" "$PATH_SEEN"; echo; [ -e stopped ] && exit 7; trap 'touch stopped; exit 7' TERM; while :; do sleep 0.05; done`;
    const row = aRow({ command, env });
    node.executor.setDesired([wanted(row)]);
    await node.reported(row, "running");
    const lines = (await node.logLines(row, 2)).join("\n");
    expect(lines).toContain(`wrapped by ${join(dataDir, "work", row.id)} ()`);
    expect(lines).toMatch(/it's "all" \$HOME\n.*here\|9\|leaked\|/s);
    await node.executor.restart(row.id);
    const crashed = await node.reported(row, "backoff");
    expect(crashed.exit_code).toBe(7);
    expect(readFileSync(join(dataDir, "work", row.id, "stopped"), "utf8")).toBe("");
  });

  test("that is no program fails the start of the agent", async () => {
    const started = startExecutor({ wrapper: ["no-such-wrapper"] });
    await expect(started).rejects.toThrow("NODE_UNIT_WRAPPER");
  });
});

test("an agent that is root without confinement logs a warning at every start", async () => {
  const { wrapper } = openPlace();
  const [plain, wrapping] = [await startExecutor(), await startExecutor({ wrapper: [wrapper] })];
  const warned = ({ logs }: typeof plain) => logs.some(({ event }) => event === "children.as-root");
  expect([warned(plain), warned(wrapping)]).toEqual([isRoot, false]);
});

if (!isRoot)
  test("an agent that is not root fails to start with other users", async () => {
    const started = startExecutor({ runAs: { kind: "one", uid: 71_000, gid: 71_000 } });
    await expect(started).rejects.toThrow("runs as root");
  });

if (isRoot)
  describe("one user for all children", () => {
    const runAs = { kind: "one", uid: 71_001, gid: 71_002 } as const;

    test("owns the work directory with the files of former children, may reopen its output, and is stopped", async () => {
      const { dataDir } = openPlace();
      const row = aRow({
        command: "id -u; id -g; id -G; echo mine >>old.txt; echo said >/dev/stderr; exec sleep 600",
      });
      const work = join(dataDir, "work", row.id);
      mkdirSync(work, { recursive: true });
      writeFileSync(join(work, "old.txt"), "old\n", { mode: 0o600 });
      const node = await startExecutor({ dataDir, runAs });
      node.executor.setDesired([wanted(row)]);
      const lines = await node.logLines(row, 4);
      // The two outputs are read apart, so only lines of one output have an order.
      const said = lines.map((line) => line.split(" ").at(-1)).sort();
      expect(said).toEqual(["71001", "71002", "71002", "said"]);
      expect(readFileSync(join(work, "old.txt"), "utf8")).toBe("old\nmine\n");
      const modes = ["", "packages", "work", "run", "logs"].map((name) =>
        statSync(join(dataDir, name)),
      );
      expect(modes.map(({ mode }) => (mode & 0o777).toString(8))).toEqual([
        "710",
        "710",
        "710",
        "700",
        "700",
      ]);
      await node.executor.stop();
      expect(node.statesOf(row).at(-1)).toBe("stopped");
    });

    test("fails the start of the agent if it cannot enter the data directory", async () => {
      const { dataDir } = openPlace();
      chmodSync(join(dataDir, ".."), 0o700);
      await expect(startExecutor({ dataDir, runAs })).rejects.toThrow("cannot enter");
    });
  });

if (isRoot)
  describe("the owners of a range", () => {
    const range = (lastUid: number) =>
      ({ kind: "each", firstUid: 71_000, lastUid, gid: 71_000 }) as const;
    const make = (work: string, id: string) => mkdirSync(join(work, id));

    test("are unique per deployment, stay with the work directory, and run out with an error", () => {
      const work = scratchDirectory("work");
      const ids = ["a", "b", "c"];
      const first = createOwners(range(71_002), work);
      for (const id of ids) make(work, id);
      const uids = ids.map((id) => first.of(id)!.uid);
      expect(uids.toSorted()).toEqual([71_000, 71_001, 71_002]);
      ids.forEach((id, index) => void chownSync(join(work, id), uids[index]!, 71_000));
      make(work, "d");
      expect(() => first.of("d")).toThrow("all 3 uids are in use");
      const next = createOwners(range(71_002), work);
      expect(ids.map((id) => next.of(id)!.uid)).toEqual(uids);
      expect(() => next.of("d")).toThrow("all 3 uids are in use");
    });

    test("get the files of the former owner, never the target of a link", async () => {
      const work = scratchDirectory("work");
      const elsewhere = scratchDirectory("elsewhere");
      onTestFinished(() => chmodSync(elsewhere, 0o700));
      writeFileSync(join(elsewhere, "precious"), "");
      mkdirSync(join(work, "a", "below"), { recursive: true });
      writeFileSync(join(work, "a", "below", "file"), "");
      symlinkSync(elsewhere, join(work, "a", "link"));
      writeFileSync(join(work, "a", "of-a-third"), "");
      chownSync(join(work, "a", "of-a-third"), 71_009, 71_009);
      await chownDirectory(join(work, "a"), { uid: 71_003, gid: 71_000 });
      const uidOf = (path: string) => statSync(path).uid;
      expect(uidOf(join(work, "a"))).toBe(71_003);
      expect(uidOf(join(work, "a", "below", "file"))).toBe(71_003);
      expect(uidOf(join(work, "a", "of-a-third"))).toBe(71_009);
      expect([uidOf(elsewhere), uidOf(join(elsewhere, "precious"))]).toEqual([0, 0]);
    });
  });
