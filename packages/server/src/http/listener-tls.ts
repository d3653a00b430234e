import type { ServerOptions } from "node:https";
import type { Socket } from "node:net";
import { TLSSocket, type Server as TlsServer } from "node:tls";
import { type Config, ConfigError } from "../config.ts";
import type { Clock } from "../kernel/clock.ts";
import type { Log } from "../kernel/log.ts";
import { leafOf, PemFiles, PemProblem } from "../kernel/pem-files.ts";
import { every, type Loop } from "../kernel/service.ts";
import type { Telemetry } from "../telemetry.ts";

/** The certificates of the listener. */
export type ListenerTls = Pick<PemFiles, "refresh" | "current"> & {
  /** Who must present a client certificate. */
  readonly clients: "none" | "nodes" | "all";
};

/** How long a client may take for its handshake. */
const HANDSHAKE_LIMIT_MS = 10_000;
const CHECK_EVERY_MS = 2_000;

/** Opens the certificates of `[server.tls]`; undefined for a listener of plain HTTP. Throws a `ConfigError`. */
export function openListenerTls({ server: { tls } }: Config): ListenerTls | undefined {
  if (tls.cert_file === "") return undefined;
  const named = (name: "cert_file" | "key_file" | "client_ca_file") =>
    tls[name] === "" ? undefined : { name: `server.tls.${name}`, path: tls[name] };
  try {
    const files = new PemFiles({
      cert: named("cert_file"),
      key: named("key_file"),
      ca: named("client_ca_file"),
    });
    return Object.assign(files, {
      clients: tls.client_ca_file === "" ? ("none" as const) : tls.client_auth,
    });
  } catch (error) {
    throw error instanceof PemProblem ? new ConfigError([error.message]) : error;
  }
}

/** The options of an `https` server. */
export function listenerOptions(tls: ListenerTls): ServerOptions {
  return {
    ...contextOf(tls),
    handshakeTimeout: HANDSHAKE_LIMIT_MS,
    requestCert: tls.clients !== "none",
    // With `nodes` a client without a certificate is let in, and may not act as a node or as an instance.
    rejectUnauthorized: tls.clients === "all",
  };
}

const contextOf = ({ current }: ListenerTls) => ({ ...current, minVersion: "TLSv1.2" as const });

/**
 * Whether the client proved that it has a certificate of `client_ca_file`. `authorized` alone does not show it: a session
 * of TLS 1.3 that is resumed counts as authorized although it was begun without a certificate.
 */
export function hasClientCertificate(socket: Socket): boolean {
  return (
    socket instanceof TLSSocket &&
    socket.authorized &&
    socket.getPeerCertificate().raw !== undefined
  );
}

const REPORTED_EVERY_MS = 60_000;

/**
 * Counts handshakes that failed and logs one a minute: a client with the wrong CA, or without a certificate where all need
 * one, leaves no other trace here. A connection that is closed before its handshake is a probe of a load balancer.
 */
export function reportHandshakes({
  server,
  log,
  clock,
  telemetry,
}: {
  server: Pick<TlsServer, "on">;
  log: Log;
  clock: Clock;
  telemetry: Pick<Telemetry, "refusedRequests">;
}): void {
  let failed = 0;
  let nextReportMs = 0;
  server.on("tlsClientError", (error: NodeJS.ErrnoException, socket) => {
    if (error.code === "ECONNRESET") return;
    telemetry.refusedRequests.inc({ reason: "tls" });
    failed += 1;
    if (clock.monotonicMs() < nextReportMs) return;
    nextReportMs = clock.monotonicMs() + REPORTED_EVERY_MS;
    const { code: reason = error.message } = error;
    log.warn(
      { event: "tls.refused", reason, address: socket.remoteAddress, failed },
      `a TLS handshake failed: ${reason}`,
    );
    failed = 0;
  });
}

export interface CertificateWatchOptions {
  server: Pick<TlsServer, "setSecureContext">;
  tls: ListenerTls;
  log: Log;
  clock: Clock;
  telemetry: Pick<Telemetry, "certificateExpires">;
}

/**
 * Takes new certificates into use without a restart: handshakes from then on are made with them, open connections stay.
 * A pair that cannot be used is left alone, and logged once when two checks in a row find it: in between the two files of
 * a pair are written.
 */
export function watchCertificates({
  server,
  tls,
  log,
  clock,
  telemetry,
}: CertificateWatchOptions): Loop {
  let broken: { problem: string; checks: number } | undefined;
  let warnedOf: string | undefined;

  async function check(): Promise<void> {
    try {
      if (tls.refresh()) {
        server.setSecureContext(contextOf(tls));
        log.info({ event: "tls.reloaded", ...described() }, "new certificate is in use");
      }
      broken = undefined;
    } catch (error) {
      if (!(error instanceof PemProblem)) throw error;
      reportBroken(error.message);
    }
    reportExpiry();
  }

  function reportBroken(problem: string): void {
    broken = { problem, checks: broken?.problem === problem ? broken.checks + 1 : 1 };
    if (broken.checks !== 2) return;
    log.error(
      { event: "tls.not-reloaded", problem, ...described() },
      `new certificate cannot be used; the listener keeps the former one: ${problem}`,
    );
  }

  function reportExpiry(): void {
    const leaf = leafOf(tls.current);
    if (!leaf) return;
    const [fromMs, untilMs] = [Date.parse(leaf.validFrom), Date.parse(leaf.validTo)];
    telemetry.certificateExpires.set(untilMs / 1_000);
    const leftMs = untilMs - clock.wallMs();
    if (leftMs > Math.min(WARN_BEFORE_MS, (untilMs - fromMs) / 5)) return;
    if (warnedOf === leaf.serialNumber) return;
    warnedOf = leaf.serialNumber;
    log.warn(
      { event: "tls.expires", ...described() },
      `the certificate in server.tls.cert_file expires on ${leaf.validTo}; then no client connects`,
    );
  }

  function described() {
    const leaf = leafOf(tls.current);
    return { serial: leaf?.serialNumber, subject: leaf?.subject, until: leaf?.validTo };
  }

  return every(CHECK_EVERY_MS, check, {
    clock,
    onError: (error) =>
      log.error({ event: "tls.not-checked", error }, "could not check the certificate files"),
  });
}

/** A certificate of short life is renewed later: then its last fifth counts. */
const WARN_BEFORE_MS = 7 * 86_400_000;
