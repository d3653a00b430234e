import { join, relative, resolve } from "node:path";
import { Command } from "commander";
import pc from "picocolors";
import type { Context } from "../context.ts";
import { type DevAccess, openDevAccess, writePointer } from "../dev/access.ts";
import { type Demo, startDemo } from "../dev/demo.ts";
import { EXAMPLES, flag, URL_DEFAULT } from "../dev/draw.ts";
import { keepFilesPrivate } from "../umask.ts";

interface Flags {
  port?: string;
  dataDir?: string;
  demo: boolean;
}

/** `tenure dev`, which `npm start` runs: server, node-units and demo deployments on one machine. */
export function devCommand(context: Context): Command {
  return new Command()
    .option("--port <number>", "port to listen on; 0 picks a free one")
    .option("--data-dir <directory>", "directory of the embedded store")
    .option("--no-demo", "start only the server, without node-units and deployments")
    .action(async (flags: Flags) => {
      context.keepsRunning = true;
      const unitUmask = keepFilesPrivate();
      const startedAtMs = performance.now();
      const { runServer } = await import("@tenure/server");
      let demo: Demo | undefined;
      const dataDir = dataDirOf(flags);
      const own = openDevAccess(dataDir);
      const print = (text: string) => void process.stdout.write(`${text}\n`);
      print(
        pc.dim("starting (the first start creates the embedded database and takes some seconds) …"),
      );
      context.exitCode = await runServer({
        overrides: { port: flags.port, data_dir: flags.dataDir },
        logLevel: "warn",
        devAccess: own,
        onReady: (app, { isDevAccess }) => {
          const access = isDevAccess ? own : undefined;
          const pointerWritten = access === undefined || writePointer(app.url, access);
          print(greeting(app, { tookMs: performance.now() - startedAtMs, access }));
          if (!pointerWritten)
            print(pc.dim(`  Commands need TENURE_TOKEN="$(cat ${own.tokenFile})"`));
          if (!flags.demo) return;
          const started = startDemo({
            url: app.url,
            dataDir,
            unitUmask,
            access,
            print,
          });
          demo = started;
          beforeSignals(() => started.stop());
        },
      });
      await demo?.stop();
    });
}

/**
 * Stops the node-units before the server. Otherwise they could not sign off, and the next server start would treat their
 * old processes as still connected.
 */
function beforeSignals(act: () => Promise<void>): void {
  let stopping = false;
  for (const signal of ["SIGINT", "SIGTERM"] as const) {
    const serverListeners = process.listeners(signal);
    process.removeAllListeners(signal);
    process.on(signal, () => {
      if (stopping) process.exit(1);
      stopping = true;
      const stopServer = () => {
        for (const listener of serverListeners) listener(signal);
      };
      act().then(stopServer, stopServer);
    });
  }
}

const dataDirOf = ({ dataDir }: Flags): string =>
  resolve(dataDir ?? process.env.TENURE_SERVER_DATA_DIR ?? ".tenure");

function greeting(
  app: { url: string; durability: string },
  { tookMs, access }: { tookMs: number; access: DevAccess | undefined },
): string {
  const env = app.url === URL_DEFAULT ? "" : `TENURE_URL=${app.url} `;
  const took = pc.dim(`(${(tookMs / 1_000).toFixed(1)} s)`);
  const lines = [
    `${pc.green("●")} ${pc.bold("Tenure is ready")} at ${pc.cyan(app.url)} ${took}`,
    "",
    `  console ${app.url}/${access ? `#code=${access.code}` : ""}`,
    `  store   ${app.durability}`,
    `  health  ${app.url}/health/ready`,
    `  API     ${app.url}/openapi.json`,
    `  metrics ${app.url}/metrics`,
    "",
    "  Try in another terminal:",
    `    npx tenure health${flag(app.url)}`,
    `    npx tenure events -f${flag(app.url)}`,
    `    npx tenure signer allocate eip155:1:0x52908400098527886e0f7030069857d2e4169ee7${flag(app.url)}`,
    `    ${env}node ${relative("", join(EXAMPLES, "send-transactions/main.js"))}`,
    "",
    pc.dim("  Ctrl-C stops Tenure. Its data is kept for the next start."),
  ];
  return lines.join("\n");
}
