import { Command } from "commander";
import pc from "picocolors";
import type { Context } from "../context.ts";

interface Flags {
  port?: string;
  dataDir?: string;
}

/** Everything on one machine with nothing to install: what `npm start` runs. */
export function devCommand(context: Context): Command {
  return new Command()
    .option("--port <number>", "port to listen on; 0 picks a free one")
    .option("--data-dir <directory>", "where the embedded store keeps its files")
    .action(async (flags: Flags) => {
      const startedAtMs = performance.now();
      const { runServer } = await import("@tenure/server");
      process.stdout.write(
        pc.dim("starting (the first start makes the embedded database, some seconds) …\n"),
      );
      context.exitCode = await runServer({
        overrides: { port: flags.port, data_dir: flags.dataDir },
        logLevel: "warn",
        onReady: (app) => process.stdout.write(greeting(app, performance.now() - startedAtMs)),
      });
    });
}

const URL_DEFAULT = "http://127.0.0.1:7070";

function greeting(app: { url: string; durability: string }, tookMs: number): string {
  const flag = app.url === URL_DEFAULT ? "" : ` --url ${app.url}`;
  const env = app.url === URL_DEFAULT ? "" : `TENURE_URL=${app.url} `;
  const took = pc.dim(`(${(tookMs / 1_000).toFixed(1)} s)`);
  const lines = [
    `${pc.green("●")} ${pc.bold("Tenure is ready")} at ${pc.cyan(app.url)} ${took}`,
    "",
    `  store   ${app.durability}`,
    `  health  ${app.url}/health/ready`,
    `  API     ${app.url}/openapi.json`,
    `  metrics ${app.url}/metrics`,
    "",
    "  Try next, in another terminal:",
    `    npx tenure health${flag}`,
    `    npx tenure events -f${flag}`,
    `    npx tenure signer allocate eip155:1:0x52908400098527886e0f7030069857d2e4169ee7${flag}`,
    `    ${env}node examples/send-transactions/main.js`,
    "",
    pc.dim("  Ctrl-C stops it. What it wrote is still there at the next start."),
    "",
  ];
  return `${lines.join("\n")}\n`;
}
