import type { ClusterView } from "@tenure/protocol";
import { ROUTES } from "@tenure/sdk";
import { Command } from "commander";
import pc from "picocolors";
import { confirmed } from "../confirm.ts";
import type { Context } from "../context.ts";
import { print, table } from "../output.ts";
import { printable } from "../printable.ts";
import { connect, type RemoteFlags, withServerFlags } from "../remote.ts";

/** `tenure cluster`, and `tenure cluster confirm-timeline`. */
export function clusterCommand(_: Context): Command {
  return withServerFlags(new Command())
    .action(async (flags: RemoteFlags) =>
      print(await connect(flags).call(ROUTES.readCluster, {}), flags, draw),
    )
    .addCommand(confirmTimeline());
}

function confirmTimeline(): Command {
  return withServerFlags(
    new Command("confirm-timeline").description(
      "accept the history of this Postgres and resume nonce allocation",
    ),
  )
    .option("--yes", "skip the confirmation prompt")
    .action(async (_flags: RemoteFlags, command: Command) => {
      const flags = command.optsWithGlobals<RemoteFlags & { yes?: boolean }>();
      const warning =
        "Postgres may have lost allocated nonces; raise each signer above the nonces that its chain has seen first";
      if (!flags.yes && !(await confirmed(warning)))
        throw new Error(`${warning}; nothing was changed (use --yes to confirm)`);
      print(await connect(flags).call(ROUTES.confirmTimeline, {}), flags, draw);
    });
}

function draw(view: ClusterView): string {
  const { instance_id, instances, dependencies, phase2 } = view;
  const rows = instances.map((instance) => [
    instance.instance_id === instance_id ? `${instance.instance_id} ←` : instance.instance_id,
    instance.url,
    instance.version,
    instance.live ? { text: "live", paint: pc.green } : { text: "gone", paint: pc.red },
  ]);
  const stores = dependencies.map(
    ({ name, kind, ok }) =>
      `${printable(`${name} (${kind})`)} ${ok ? pc.green("up") : pc.red("down")}`,
  );
  return [
    table(["INSTANCE", "URL", "VERSION", "STATE"], rows),
    "",
    `stores: ${stores.join(", ")}; phase2 ${phase2 ? "on" : "off"}`,
    ...drawTimeline(view),
  ].join("\n");
}

function drawTimeline({ timeline }: ClusterView): string[] {
  if (!timeline) return [];
  const { state, reason } = timeline;
  const why = reason ? ` (${printable(reason)})` : "";
  const paint = state === "confirmed" ? pc.green : state === "unknown" ? pc.yellow : pc.red;
  const next = "; nonce allocation is stopped, resume it with: tenure cluster confirm-timeline";
  return [`timeline: ${paint(state)}${why}${state === "unconfirmed" ? next : ""}`];
}
