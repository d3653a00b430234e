import { type App, startApp } from "./app.ts";
import { type Config, ConfigError, loadConfig, type Overrides, tokenSha256 } from "./config.ts";
import { createLog, type Log, type LogLevel } from "./kernel/log.ts";

export interface ServerOptions {
  configPath?: string | undefined;
  overrides?: Overrides | undefined;
  logLevel?: LogLevel | undefined;
  /**
   * An admin token, and a code that signs one browser in with it, for a server on the embedded store that has no tokens of
   * its own.
   */
  devAccess?: { token: string; code: string } | undefined;
  /** SIGHUP reads the tokens of the settings again, and the certificates at once. Not under a terminal, whose end sends it too. */
  reloads?: boolean | undefined;
  /** Called once, when the server answers requests. */
  onReady: (app: App, how: { isDevAccess: boolean }) => void;
}

const STOP_LIMIT_MS = 15_000;
const EXIT_GRACE_MS = 500;

/**
 * Runs a server until it is stopped; resolves to the exit code. An error that an operator can fix (a setting, a taken
 * port, a store that is down) is one sentence on stderr; any other error is a bug and is printed with its stack.
 */
export async function runServer(options: ServerOptions): Promise<number> {
  const log = createLog(options.logLevel ?? "info");
  let end: (exitCode: number) => void;
  const ended = new Promise<number>((resolve) => {
    end = resolve;
  });
  try {
    const load = () =>
      loadConfig({
        path: options.configPath,
        env: process.env,
        cwd: process.cwd(),
        overrides: options.overrides,
      });
    const given = load();
    const isOwn = given.auth.tokens.length === 0 && given.server.postgres_uri === "";
    const devAccess = isOwn ? options.devAccess : undefined;
    let running: App | undefined;
    if (options.reloads) onReload(() => running, { log, load });
    const app = await startApp({
      config: devAccess ? withToken(given, devAccess.token) : given,
      signInCode: devAccess,
      log,
      onFatal: (reason) => {
        log.error({ event: "instance.ended", reason }, "ending this process");
        end(1);
      },
    });
    onSignals(() => end(0));
    running = app;
    options.onReady(app, { isDevAccess: devAccess !== undefined });
    const exitCode = await ended;
    await stopWithin(app, { limitMs: STOP_LIMIT_MS, log });
    exitSoon(exitCode);
    return exitCode;
  } catch (error) {
    process.stderr.write(`${describe(error)}\n`);
    return 1;
  }
}

function withToken(config: Config, secret: string): Config {
  const sha256 = tokenSha256(secret);
  const token = { name: "dev", role: "admin", tenant: "default", sha256 } as const;
  return { ...config, auth: { ...config.auth, tokens: [token] } };
}

/** The first signal stops in order, the second ends the process at once. */
function onSignals(stop: () => void): void {
  let isStopping = false;
  for (const signal of ["SIGINT", "SIGTERM"] as const) {
    process.on(signal, () => {
      if (isStopping) process.exit(1);
      isStopping = true;
      stop();
    });
  }
}

/** Reads the certificates and the settings again at SIGHUP, and replaces the tokens. Broken settings change nothing. */
function onReload(
  running: () => App | undefined,
  { log, load }: { log: Log; load: () => Config },
): void {
  process.on("SIGHUP", () => {
    try {
      const app = running();
      if (!app) throw new Error("the server is still starting");
      app.reloadCertificates?.();
      const { tokens } = load().auth;
      app.replaceTokens(tokens);
      log.info(
        { event: "tokens.reloaded", tokens: tokens.length },
        "tokens of the settings read again; other settings change at a restart",
      );
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      log.error(
        { event: "tokens.not-reloaded", reason },
        "could not read the tokens of the settings again; the former ones stay valid",
      );
    }
  });
}

async function stopWithin(
  app: App,
  { limitMs, log }: { limitMs: number; log: Log },
): Promise<void> {
  const limit = setTimeout(() => {
    const steps = app.stillStopping();
    log.error(
      { event: "instance.not-stopped", limitMs, steps },
      "the stop took longer than its limit; exiting",
    );
    process.exit(1);
  }, limitMs);
  try {
    await app.stop();
    clearTimeout(limit);
  } catch (error) {
    log.error({ event: "instance.not-stopped", error }, "the stop failed; exiting");
    process.exit(1);
  }
}

/**
 * Ends the process although something is still open. On a busy machine the frames that were read before the sockets closed
 * keep the event loop busy for seconds; the stores are closed by then, so that nothing they do has an effect.
 */
function exitSoon(exitCode: number): void {
  setTimeout(() => process.exit(exitCode), EXIT_GRACE_MS).unref();
}

function describe(error: unknown): string {
  if (error instanceof ConfigError) return error.message;
  if (!(error instanceof Error)) return String(error);
  return error instanceof TypeError || error instanceof ReferenceError
    ? (error.stack ?? error.message)
    : `tenure could not start: ${error.message}`;
}
