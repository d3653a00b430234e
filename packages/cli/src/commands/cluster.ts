import type { ClusterView } from "@tenure/protocol";
import { ROUTES } from "@tenure/sdk";
import { Command } from "commander";
import pc from "picocolors";
import type { Context } from "../context.ts";
import { print, table } from "../output.ts";
import { printable } from "../printable.ts";
import { asksServer, connect, type RemoteFlags } from "../remote.ts";

export function clusterCommand(_: Context): Command {
  return asksServer(new Command()).action(async (flags: RemoteFlags) =>
    print(await connect(flags).call(ROUTES.readCluster, {}), flags, draw),
  );
}

function draw({ instance_id, instances, dependencies, phase2 }: ClusterView): string {
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
  ].join("\n");
}
