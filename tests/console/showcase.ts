import { ROUTES } from "@tenure/protocol";
import { Session, Worker } from "@tenure/sdk";
import { createOperator, playNode, run, type Unit, unitsReady } from "./fleet-scene.ts";

export interface Showcase {
  units: Unit[];
  /** Ids of what the pictures open. */
  deployments: { running: string; failing: string; pending: string };
  signer: string;
  stop(): Promise<void>;
}

const REGIONS = ["fra", "ams", "sin", "iad"];
const SIGNERS = [
  "eip155:1:0x52908400098527886e0f7030069857d2e4169ee7",
  "eip155:10:0x8617e340b3d01fa5f11f306f4090fd50e238070d",
  "eip155:8453:0xde709f2102306220921060314715629080e2fb77",
  "solana:5eykt4:7S3P4HxJpyyigGzodYwHtCxZyUQe9JiBMHyRWXArAaKv",
];

/** A small fleet in the middle of its day: most of it well, some of it not. */
export async function raiseShowcase({
  url,
  token,
}: {
  url: string;
  token: string;
}): Promise<Showcase> {
  const operator = createOperator(url, token);
  const units = Array.from({ length: 12 }, (_, index) => {
    const region = REGIONS[index % REGIONS.length]!;
    const hasGpu = index % 5 === 0;
    return playNode({
      url,
      token,
      name: `${region}-${String(Math.floor(index / REGIONS.length) + 1).padStart(2, "0")}`,
      usage: {
        cpu_percent: [12, 34, 61, 23, 78, 44, 9, 93, 31, 27, 55, 38][index]!,
        memory_percent: [31, 48, 55, 40, 66, 71, 22, 58, 35, 80, 49, 44][index]!,
        memory_mb: 2_100 + 640 * index,
      },
      describe: {
        labels: { region, tier: index < 8 ? "main" : "edge", ...(hasGpu && { gpu: "a10" }) },
        claim_policy:
          index === 11 ? "none" : index % 3 === 0 ? "resource_usage" : "deployment_count",
      },
    });
  });
  await unitsReady(units);

  const names = [
    "checkout",
    "billing",
    "search",
    "ingest",
    "mailer",
    "reports",
    "pricing",
    "gateway",
    "ledger",
    "webhooks",
    "thumbnails",
    "geocoder",
    "recommendations",
    "inventory",
    "audit-trail",
    "currency-rates",
    "sessions-gc",
    "sitemap",
  ];
  const made = [];
  for (const [index, name] of names.entries()) {
    made.push(
      await operator.create({
        name,
        package_name: `@acme/${name}`,
        package_version: `${1 + (index % 3)}.${index % 7}.${(index * 5) % 11}`,
        args: ["--port", String(8_000 + index), "--log", "json"],
        env: {
          NODE_ENV: "production",
          REGION: REGIONS[index % 4]!,
          DATABASE_URL: "postgres://acme@db/acme",
        },
        ...(index % 6 === 0 && { selector: { tier: "main" } }),
        ...(index % 4 === 0 && { lost_after_ms: 40_000 }),
      }),
    );
  }
  const failing = made[6]!;
  const pending = made[13]!;
  for (const [index, view] of made.entries()) {
    if (view === pending) continue;
    const unit = units[index % 11]!;
    if (view === failing) {
      await run(unit, view, {
        state: "backoff",
        pid: null,
        restarts: 7,
        exit_code: 1,
        last_error: "exited with code 1: Error: connect ECONNREFUSED 10.2.0.14:5432",
      });
    } else await run(unit, view, { restarts: index === 3 ? 2 : 0 });
  }
  await operator.call(ROUTES.updateDeployment, {
    params: { id: pending.id },
    body: { selector: { region: "gru", gpu: "h100" } },
  });
  const logger = await operator.create({
    name: "log-shipper",
    type: "daemon",
    package_name: "@acme/log-shipper",
    package_version: "4.1.0",
  });
  for (const unit of units.slice(0, 11)) await run(unit, logger);
  await operator.create({
    name: "old-importer",
    package_name: "@acme/importer",
    package_version: "0.9.4",
    enabled: false,
  });

  const checkout = made[0]!;
  for (const package_version of ["1.0.1", "1.1.0"]) {
    await operator.call(ROUTES.updateDeployment, {
      params: { id: checkout.id },
      body: {
        package_version,
        env: { NODE_ENV: "production", REGION: "fra", RELEASE: package_version },
      },
    });
  }
  units[0]!.log(checkout.id, ...logLines(400));
  await operator.call(ROUTES.drainNode, { params: { id: units[5]!.address } });
  await units[10]!.leave();
  await signAndForget(operator);
  const traffic = startTraffic({ url, token });
  return {
    units,
    deployments: { running: checkout.id, failing: failing.id, pending: pending.id },
    signer: SIGNERS[0]!,
    async stop() {
      await traffic.stop();
      await Promise.all(units.map((unit) => unit.leave()));
    },
  };
}

/** Numbers in every state; those nobody marks go into quarantine when their hold runs out. */
async function signAndForget(operator: ReturnType<typeof createOperator>): Promise<void> {
  for (const [index, signer] of SIGNERS.entries()) {
    const { items } = (await operator.call(ROUTES.allocateNonces, {
      params: { signer },
      body: { request_id: `first-${index}`, count: 48 - 11 * index },
    })) as { items: { nonce: number; hold_id: string }[] };
    for (const { nonce, hold_id } of items) {
      if (index < 2 && [19, 31].includes(nonce)) continue;
      if (nonce % 17 === 12) {
        await operator.call(ROUTES.markNonceRecyclable, {
          params: { signer, nonce: String(nonce) as never },
          body: { hold_id, reason: "the signature was refused" },
        });
      } else {
        await operator.call(ROUTES.markNonceUsed, {
          params: { signer, nonce: String(nonce) as never },
          body: { hold_id, tx_hash: `0x${(nonce + 1).toString(16).padStart(64, "ab")}` },
        });
      }
    }
  }
}

function logLines(count: number): string[] {
  const paths = ["/v1/carts", "/v1/orders", "/v1/prices?currency=EUR", "/v1/orders/8841/capture"];
  return Array.from({ length: count }, (_, index) => {
    const time = new Date(Date.now() - (count - index) * 900).toISOString().slice(11, 23);
    if (index % 13 === 12) return `${time} warn  payment provider slow, ${900 + index} ms`;
    const status = index % 29 === 28 ? 503 : 200;
    return `${time} info  POST ${paths[index % 4]} ${status} in ${3 + ((index * 7) % 40)} ms`;
  });
}

/** Workers that do something for a while, and sessions that keep them busy. */
function startTraffic({ url, token }: { url: string; token: string }): { stop(): Promise<void> } {
  const workers = ["gpu-fra-1", "gpu-fra-2", "gpu-iad-1", "cpu-sin-1", "cpu-ams-1"].map(
    (name, index) =>
      new Worker({
        url,
        token,
        name,
        version: "2.3.0",
        pools: index < 3 ? ["render", "embed"] : ["embed"],
        services: index < 3 ? ["llama-70b", "whisper"] : [],
        capacity: index < 3 ? 6 : 12,
        labels: { region: name.split("-")[1]!, kind: name.split("-")[0]! },
        run: ({ payload }) => work(payload as { n: number }),
      }),
  );
  const sessions = [0, 1, 2, 3].map(() => new Session({ url, token }));
  let n = 0;
  const turns = sessions.map((session) => session.turn());
  const submit = (): void => {
    const speaker = n % sessions.length;
    const request = {
      pool: n % 4 === 0 ? "render" : "embed",
      payload: { n },
      requestId: `order-${84_000 + n}`,
    };
    n += 1;
    // Two speak in turns, two do not. How each job ends is what the pictures show.
    const by = speaker < 2 ? turns[speaker]! : sessions[speaker]!;
    by.submit(request).catch(() => {});
  };
  const timer = setInterval(submit, 60);
  return {
    async stop() {
      clearInterval(timer);
      await Promise.all(sessions.map((session) => session.close()));
      await Promise.all(workers.map((worker) => worker.close({ withinMs: 500 })));
    },
  };
}

async function work({ n }: { n: number }): Promise<unknown> {
  await new Promise((resolve) => setTimeout(resolve, 120 + ((n * 97) % 900)));
  if (n % 23 === 11)
    throw Object.assign(new Error("the image is not readable"), { code: "BAD_IMAGE" });
  if (n % 31 === 7 && Math.random() < 0.6)
    throw Object.assign(new Error("out of memory"), { code: "OUT_OF_MEMORY", retryable: true });
  return { ok: true, width: 1_024, height: 768, tokens: 300 + (n % 50) };
}
