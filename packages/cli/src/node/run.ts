import { findDevToken } from "@tenure/sdk/dev-token";
import { Command, Option } from "commander";
import type { Context } from "../context.ts";
import { printable } from "../printable.ts";
import { keepFilesPrivate } from "../umask.ts";
import { VERSION } from "../version.ts";

// The agent's own names, written again: to load the agent for them would cost every `--help`.
const LOG_LEVELS = ["info", "warn", "error", "silent"] as const;

interface Flags {
  url?: string;
  name?: string;
  dataDir?: string;
  logLevel: (typeof LOG_LEVELS)[number];
}

/** `tenure node run`: this machine becomes a node-unit, until it is told to stop. */
export function runCommand(context: Context): Command {
  return new Command("run")
    .description("run a node-unit on this machine; its settings are in the environment")
    .option("--url <url>", "the server, or several with commas between (HOST_URL)")
    .option("--name <name>", "name to show (NODE_UNIT_NAME)")
    .option("--data-dir <directory>", "key, packages and logs (NODE_UNIT_DATA_DIR)")
    .addOption(
      new Option("--log-level <level>", "logs go to stderr").choices(LOG_LEVELS).default("info"),
    )
    .action(async (flags: Flags) => {
      context.keepsRunning = true;
      context.exitCode = await runNode(flags);
    });
}

/** Beyond the time that the children have to stop. */
const STOP_LIMIT_MS = 15_000;

async function runNode(flags: Flags): Promise<number> {
  const { ConfigError, createAgentLog, readAgentConfig, startAgent } = await import(
    "@tenure/agent"
  );
  const childUmask = keepFilesPrivate();
  const stopping = stopSignal();
  try {
    const config = readAgentConfig({ env: environmentOf(flags) });
    const agent = await startAgent(config, {
      log: createAgentLog(flags.logLevel),
      version: VERSION,
      childUmask,
      onReady: once(({ instanceId }) =>
        say(`node-unit ${agent.name} (${agent.address}) is connected to ${instanceId}`),
      ),
    });
    await stopping;
    setTimeout(() => process.exit(1), config.stop_grace_ms + STOP_LIMIT_MS).unref();
    await agent.stop();
    return 0;
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    process.stderr.write(`${error.message}\n`); // several lines, one per problem
    return 1;
  } finally {
    if (process.connected) process.disconnect(); // an open channel would keep this process alive
  }
}

/** What a flag says goes before the environment. Of a `tenure dev` on this machine the token is found. */
function environmentOf({ url, name, dataDir }: Flags): NodeJS.ProcessEnv {
  const { HOST_URL = "", HOST_TOKEN, HOST_TOKEN_FILE } = process.env;
  const devToken = HOST_TOKEN || HOST_TOKEN_FILE ? undefined : findDevToken(url ?? HOST_URL);
  return {
    ...process.env,
    ...(devToken !== undefined && { HOST_TOKEN: devToken }),
    ...(url !== undefined && { HOST_URL: url }),
    ...(name !== undefined && { NODE_UNIT_NAME: name }),
    ...(dataDir !== undefined && { NODE_UNIT_DATA_DIR: dataDir }),
  };
}

/**
 * The first signal asks, the second insists: the children end with this process either way. Whoever started it with a
 * channel, as `tenure dev` does, also ends it by going away.
 */
function stopSignal(): Promise<void> {
  return new Promise((resolve) => {
    let asked = false;
    for (const signal of ["SIGINT", "SIGTERM"] as const) {
      process.on(signal, () => {
        if (asked) process.exit(1);
        asked = true;
        resolve();
      });
    }
    if (process.send) process.once("disconnect", resolve);
  });
}

function once<T>(act: (value: T) => void): (value: T) => void {
  let done = false;
  return (value) => {
    if (done) return;
    done = true;
    act(value);
  };
}

const say = (line: string): void => void process.stdout.write(`${printable(line)}\n`);
