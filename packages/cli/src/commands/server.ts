import { Command } from "commander";
import type { Context } from "../context.ts";
import { keepFilesPrivate } from "../umask.ts";

interface Flags {
  config?: string;
  port?: string;
  dataDir?: string;
  logLevel: "debug" | "info" | "warn" | "error" | "silent";
}

export function serverCommand(context: Context): Command {
  return new Command()
    .option("--config <file>", "configuration file (default: tenure.toml, if it exists)")
    .option("--port <number>", "port to listen on; 0 picks a free one")
    .option("--data-dir <directory>", "directory of the embedded store")
    .option(
      "--log-level <level>",
      "debug, info, warn, error or silent; logs are written to stderr",
      "info",
    )
    .action(async (flags: Flags) => {
      context.keepsRunning = true;
      keepFilesPrivate();
      const { runServer } = await import("@tenure/server");
      context.exitCode = await runServer({
        configPath: flags.config,
        overrides: { port: flags.port, data_dir: flags.dataDir },
        logLevel: flags.logLevel,
        // The end of a terminal sends SIGHUP too, and should end a server that was started by hand.
        reloads: !process.stdout.isTTY,
        onReady: (app) => process.stdout.write(`tenure ready at ${app.url}\n`),
      });
    });
}
