import type { HealthReady } from "@tenure/protocol";
import { ROUTES } from "@tenure/sdk";
import { Command } from "commander";
import pc from "picocolors";
import type { Context } from "../context.ts";
import { print } from "../output.ts";
import { printable } from "../printable.ts";
import { asksServer, connect, type RemoteFlags } from "../remote.ts";

/** Exit code 0 only when the server is ready, so that a script can ask too. */
export function healthCommand(context: Context): Command {
  return asksServer(new Command()).action(async (flags: RemoteFlags) => {
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

/** Said only when it is not as it should be. */
function drawTimeline(nonces: HealthReady["nonces"]): string[] {
  if (!nonces || nonces.timeline.state === "confirmed") return [];
  const { state, reason } = nonces.timeline;
  return [
    `${pc.red("●")} nonces ${pc.dim(`(timeline ${state})`)} ${printable(reason ?? "")}`.trimEnd(),
  ];
}
