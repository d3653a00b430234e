import type { HealthReady } from "@tenure/protocol";
import { ROUTES } from "@tenure/sdk";
import { Command } from "commander";
import pc from "picocolors";
import type { Context } from "../context.ts";
import { print } from "../output.ts";
import { printable } from "../printable.ts";
import { connect, type RemoteFlags, withServerFlags } from "../remote.ts";

/** `tenure health`. The exit code is 0 only when the server is ready, for use in scripts. */
export function healthCommand(context: Context): Command {
  return withServerFlags(new Command()).action(async (flags: RemoteFlags) => {
    const health = await connect(flags).call(ROUTES.healthReady, { accept: [503] });
    print(health, flags, draw);
    context.exitCode = health.status === "ready" ? 0 : 1;
  });
}

function draw({ status, instance_id, dependencies, nonces }: HealthReady): string {
  const lines = dependencies.map(({ name, kind, ok, reason }) =>
    [
      ok ? pc.green("●") : pc.red("●"),
      printable(name),
      pc.dim(`(${printable(kind)})`),
      printable(reason ?? ""),
    ]
      .join(" ")
      .trimEnd(),
  );
  const colour = status === "ready" ? pc.green : pc.red;
  return [
    `${colour(status.replace("_", " "))} ${pc.dim(`instance ${instance_id}`)}`,
    ...lines,
    ...drawTimeline(nonces),
  ].join("\n");
}

/** Shows the timeline only when it is not confirmed. */
function drawTimeline(nonces: HealthReady["nonces"]): string[] {
  if (!nonces || nonces.timeline.state === "confirmed") return [];
  const { state, reason } = nonces.timeline;
  return [
    `${pc.red("●")} nonces ${pc.dim(`(timeline ${state})`)} ${printable(reason ?? "")}`.trimEnd(),
  ];
}
