import type { DeploymentReport } from "@tenure/protocol";
import type { Clock } from "@tenure/sdk";
import type { DesiredDeployment } from "../../../packages/agent/src/executor/contract.ts";

/** A process that runs for a deployment, on one node. */
export interface Copy {
  id: string;
  generation: number;
  type: string;
}

export interface Children {
  setDesired(all: readonly DesiredDeployment[]): void;
  suspend(): void;
  resume(): void;
  reportAll(): void;
  /** Children die with the agent. */
  die(): void;
  running(): readonly Copy[];
}

/** The executor without processes: it takes its time to start, to install and to stop, and says so as the real one does. */
export function createChildren({
  clock,
  random,
  stopGraceMs,
  report,
  began,
  ended,
}: {
  clock: Clock;
  random: () => number;
  stopGraceMs: number;
  report: (report: DeploymentReport) => void;
  began: (copy: Copy) => void;
  ended: (copy: Copy) => void;
}): Children {
  const goals = new Map<string, DesiredDeployment>();
  const held = new Map<string, Copy & { isStopping: boolean }>();
  const prepared = new Set<string>();
  const said = new Map<string, DeploymentReport>();
  let isSuspended = false;

  function say(id: string, generation: number, state: DeploymentReport["state"]): void {
    const former = said.get(id);
    if (former?.state === state && former.generation === generation) return;
    const words = { deployment_id: id, generation, state };
    said.set(id, words);
    report(words);
  }

  function mayRun({ mode, refused, row }: DesiredDeployment): boolean {
    if (mode !== "run" || refused.length > 0) return false;
    return !isSuspended || row.type === "daemon";
  }

  function pursue(id: string): void {
    const goal = goals.get(id);
    const child = held.get(id);
    if (child) {
      const isRight = goal && mayRun(goal) && goal.row.generation === child.generation;
      if (!isRight && !child.isStopping) stop(child);
    } else if (!goal) return;
    else if (mayRun(goal)) start(goal);
    else if (goal.mode === "hold") say(id, goal.row.generation, "stopped");
    else if (goal.mode === "prepare") prepare(goal);
  }

  function start({ row: { id, generation, type } }: DesiredDeployment): void {
    const child = { id, generation, type, isStopping: false };
    held.set(id, child);
    began(child);
    clock.after(50 + 450 * random(), () => {
      if (held.get(id) === child && !child.isStopping) say(id, generation, "running");
    });
  }

  function stop(child: Copy & { isStopping: boolean }): void {
    child.isStopping = true;
    clock.after(stopGraceMs * random(), () => {
      held.delete(child.id);
      ended(child);
      pursue(child.id);
    });
  }

  function prepare({ row: { id, generation } }: DesiredDeployment): void {
    const key = `${id}:${generation}`;
    if (prepared.has(key)) {
      say(id, generation, "stopped");
      return;
    }
    prepared.add(key);
    say(id, generation, "installing");
    clock.after(200 + 2_000 * random(), () => {
      const goal = goals.get(id);
      if (goal?.mode !== "prepare" || goal.row.generation !== generation) prepared.delete(key);
      else if (random() < 0.05) {
        prepared.delete(key);
        say(id, generation, "failed");
      } else say(id, generation, "stopped");
    });
  }

  function pursueAll(): void {
    for (const id of new Set([...goals.keys(), ...held.keys()])) pursue(id);
  }

  return {
    setDesired(all) {
      goals.clear();
      for (const goal of all) goals.set(goal.row.id, goal);
      for (const [id, { generation }] of said)
        if (goals.get(id)?.row.generation !== generation) said.delete(id);
      pursueAll();
    },
    suspend() {
      isSuspended = true;
      pursueAll();
    },
    resume() {
      isSuspended = false;
      pursueAll();
    },
    reportAll() {
      for (const words of said.values()) report(words);
    },
    die() {
      goals.clear();
      for (const child of held.values()) ended(child);
      held.clear();
    },
    running: () => [...held.values()],
  };
}
