import { findDevToken } from "@tenure/sdk/dev-token";
import { Command, Option } from "commander";
import type { Context } from "../context.ts";
import { printable } from "../printable.ts";
import { keepFilesPrivate } from "../umask.ts";
import { VERSION } from "../version.ts";

// Repeated from the agent, because loading the agent would slow down every `--help`.
const LOG_LEVELS = ["info", "warn", "error", "silent"] as const;

interface Flags {
  url?: string;
  name?: string;
  joinToken?: string;
  dataDir?: string;
  logLevel: (typeof LOG_LEVELS)[number];
}

/** `tenure node run`: runs a node-unit until a signal stops it. */
export function runCommand(context: Context): Command {
  return new Command("run")
    .description("run a node-unit on this machine; configured by environment variables")
    .option("--url <url>", "server URL, or several separated by commas (HOST_URL)")
    .option(
      "--join-token <token>",
      "join token for the first start; prefer TENURE_JOIN_TOKEN, flags show in the process list",
    )
    .option("--name <name>", "display name (NODE_UNIT_NAME)")
    .option("--data-dir <directory>", "directory for key, packages and logs (NODE_UNIT_DATA_DIR)")
    .addOption(
      new Option("--log-level <level>", "logs are written to stderr")
        .choices(LOG_LEVELS)
        .default("info"),
    )
    .action(async (flags: Flags) => {
      context.keepsRunning = true;
      context.exitCode = await runNode(flags);
    });
}

/** Added to the stop grace of the children. */
const STOP_LIMIT_MS = 15_000;

async function runNode(flags: Flags): Promise<number> {
  const { ConfigError, createAgentLog, readAgentConfig, startAgent } = await import(
    "@tenure/agent"
  );
  const childUmask = keepFilesPrivate();
  const stopping = stopSignal();
  const starting = new AbortController();
  void stopping.then(() => starting.abort());
  try {
    const config = readAgentConfig({ env: environmentOf(flags) });
    const agent = await startAgent(config, {
      log: createAgentLog(flags.logLevel),
      version: VERSION,
      childUmask,
      signal: starting.signal,
      onReady: once(({ instanceId }) =>
        printLine(`node-unit ${agent.name} (${agent.address}) is connected to ${instanceId}`),
      ),
    });
    await stopping;
    setTimeout(() => process.exit(1), config.stop_grace_ms + STOP_LIMIT_MS).unref();
    await agent.stop();
    return 0;
  } catch (error) {
    // Stopped while it waited to be enrolled.
    if (starting.signal.aborted && error === starting.signal.reason) return 0;
    if (!(error instanceof ConfigError)) throw error;
    process.stderr.write(`${error.message}\n`); // several lines, one per problem
    return 1;
  } finally {
    if (process.connected) process.disconnect(); // an open channel would keep this process alive
  }
}

/** Flags override the environment. The token of a `tenure dev` on this machine is used if none is set. */
function environmentOf({ url, name, dataDir, joinToken }: Flags): NodeJS.ProcessEnv {
  const { HOST_URL = "", HOST_TOKEN, HOST_TOKEN_FILE } = process.env;
  const { TENURE_JOIN_TOKEN = joinToken, TENURE_JOIN_TOKEN_FILE } = process.env;
  const given = [HOST_TOKEN, HOST_TOKEN_FILE, TENURE_JOIN_TOKEN, TENURE_JOIN_TOKEN_FILE];
  const devToken = given.some((each) => each) ? undefined : findDevToken(url ?? HOST_URL);
  return {
    ...process.env,
    ...(devToken !== undefined && { HOST_TOKEN: devToken }),
    ...(url !== undefined && { HOST_URL: url }),
    ...(joinToken !== undefined && { TENURE_JOIN_TOKEN: joinToken }),
    ...(name !== undefined && { NODE_UNIT_NAME: name }),
    ...(dataDir !== undefined && { NODE_UNIT_DATA_DIR: dataDir }),
  };
}

/**
 * Resolves at the first signal; the second one exits at once. A process started with an IPC channel, as by `tenure dev`,
 * also stops when the parent disconnects.
 */
function stopSignal(): Promise<void> {
  return new Promise((resolve) => {
    let stopping = false;
    for (const signal of ["SIGINT", "SIGTERM"] as const) {
      process.on(signal, () => {
        if (stopping) process.exit(1);
        stopping = true;
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

const printLine = (line: string): void => void process.stdout.write(`${printable(line)}\n`);
