import { type RunningProcess, startTenure, type TenureOptions } from "../processes/process.ts";

export interface RunningServer extends RunningProcess {
  readonly url: string;
  readonly dataDir: string | undefined;
  get(path: string, init?: RequestInit): Promise<Answer>;
  health(): Promise<HealthAnswer>;
}

export interface Answer {
  status: number;
  body: unknown;
}

/** What `/health/ready` said. */
export interface HealthAnswer {
  code: number;
  status: string;
  /** The stores that do not answer, by name. */
  down: string[];
  tookMs: number;
}

const READY_DEADLINE_MS = 110_000;
const REQUEST_LIMIT_MS = 15_000;
export const READY_LINE = /^tenure ready at (https?:\/\/\S+)$/;

/** Runs `tenure server` on a free port until it says that it is ready. */
export async function startServer(
  options: TenureOptions & { args?: string[] } = {},
): Promise<RunningServer> {
  const { args = [], ...rest } = options;
  const running = startTenure(["server", "--port", "0", ...args], rest);
  const [, url = ""] = await running.waitForLine(READY_LINE, READY_DEADLINE_MS);
  return { ...running, ...askable(url) };
}

/** The settings that make a server use these stores, as an operator would set them. */
export function storeSettings(stores: {
  postgresUri?: string;
  redisUrl?: string;
  clusterUrls?: string[];
}): Record<string, string> {
  const { postgresUri, redisUrl, clusterUrls } = stores;
  return {
    ...(postgresUri && { TENURE_SERVER_POSTGRES_URI: postgresUri }),
    ...((redisUrl || clusterUrls) && { TENURE_SCHEDULER_PHASE2_ENABLED: "true" }),
    ...(redisUrl && { TENURE_SCHEDULER_PHASE2_REDIS_URL: redisUrl }),
    ...(clusterUrls && {
      TENURE_SCHEDULER_PHASE2_REDIS_MODE: "cluster",
      TENURE_SCHEDULER_PHASE2_REDIS_CLUSTER_URLS: clusterUrls.join(","),
    }),
  };
}

function askable(url: string): Pick<RunningServer, "url" | "get" | "health"> {
  async function get(path: string, init: RequestInit = {}): Promise<Answer> {
    const signal = AbortSignal.timeout(REQUEST_LIMIT_MS);
    const response = await fetch(`${url}${path}`, { signal, ...init });
    const text = await response.text();
    const isJson = response.headers.get("content-type")?.startsWith("application/json");
    return { status: response.status, body: isJson ? JSON.parse(text) : text };
  }

  async function health(): Promise<HealthAnswer> {
    const askedMs = performance.now();
    const { status: code, body } = await get("/health/ready");
    const { status, dependencies } = body as {
      status: string;
      dependencies: { name: string; ok: boolean }[];
    };
    const down = dependencies.filter(({ ok }) => !ok).map(({ name }) => name);
    return { code, status, down, tookMs: performance.now() - askedMs };
  }

  return { url, get, health };
}
