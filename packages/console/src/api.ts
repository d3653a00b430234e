import type { ErrorBody, ROUTES } from "@tenure/protocol";
import type { CallInput, CallReply } from "@tenure/sdk";

type Routes = typeof ROUTES;
type Addresses = { [Name in keyof Routes]: `${Routes[Name]["method"]} ${Routes[Name]["path"]}` };

/**
 * The routes that the console calls, checked by the compiler against the table of the protocol. Importing the table
 * would also load its schemas and double the size of the bundle.
 */
const ADDRESSES = {
  login: "POST /api/v1/login",
  logout: "POST /api/v1/logout",
  readPrincipal: "GET /api/v1/me",
  readStats: "GET /api/v1/stats",
  readCluster: "GET /api/v1/cluster",
  confirmTimeline: "POST /api/v1/cluster/confirm-timeline",
  readMembership: "GET /api/v1/membership",
  releaseBrake: "POST /api/v1/membership/release",
  listNodes: "GET /api/v1/nodes",
  drainNode: "POST /api/v1/nodes/:id/drain",
  resumeNode: "POST /api/v1/nodes/:id/resume",
  listDeployments: "GET /api/v1/deployments",
  createDeployment: "POST /api/v1/deployments",
  readDeployment: "GET /api/v1/deployments/:id",
  updateDeployment: "PATCH /api/v1/deployments/:id",
  deleteDeployment: "DELETE /api/v1/deployments/:id",
  restartDeployment: "POST /api/v1/deployments/:id/restart",
  rollbackDeployment: "POST /api/v1/deployments/:id/rollback",
  listRevisions: "GET /api/v1/deployments/:id/revisions",
  explainDeployment: "GET /api/v1/deployments/:id/why",
  readLogs: "GET /api/v1/deployments/:id/logs",
  submitJob: "POST /api/v1/jobs",
  listJobs: "GET /api/v1/jobs",
  readJob: "GET /api/v1/jobs/:id",
  cancelJob: "POST /api/v1/jobs/:id/cancel",
  listSessions: "GET /api/v1/sessions",
  readTurn: "GET /api/v1/turns/:id",
  listSigners: "GET /api/v1/signers",
  readSigner: "GET /api/v1/signers/:signer",
  raiseSigner: "PUT /api/v1/signers/:signer",
  listNonces: "GET /api/v1/signers/:signer/nonces",
  resolveNonce: "POST /api/v1/signers/:signer/nonces/:nonce/resolve",
  listDlq: "GET /api/v1/dlq",
  redriveDlq: "POST /api/v1/dlq/:id/redrive",
  discardDlq: "DELETE /api/v1/dlq/:id",
  listEvents: "GET /api/v1/events",
} as const satisfies Partial<Addresses>;

export type RouteName = keyof typeof ADDRESSES;
/** Each route takes `?tenant=` from a token of all tenants. */
export type Input<Name extends RouteName> = CallInput<Routes[Name]> & {
  query?: { tenant?: string };
};
export type Reply<Name extends RouteName> = CallReply<Routes[Name]>;

/** An error response, or no response at all (`status` 0). */
export class ApiError extends Error {
  readonly status: number;
  readonly code: string;

  constructor({ status, code, message }: { status: number; code: string; message: string }) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

/** Called when the server rejects the session. */
let onSignedOut = (): void => {};
export function whenSignedOut(then: () => void): void {
  onSignedOut = then;
}

const TIME_LIMIT_MS = 30_000;

export async function call<Name extends RouteName>(
  name: Name,
  input: Input<Name>,
): Promise<Reply<Name>> {
  const { params, query, body } = input as LooseInput;
  const [method = "", path = ""] = ADDRESSES[name].split(" ");
  const isRead = method === "GET";
  const answer = await exchange(fill(path, params) + search(query), {
    method,
    signal: AbortSignal.timeout(TIME_LIMIT_MS),
    // Sends the session cookie, to this origin only.
    credentials: "same-origin",
    ...(!isRead && { headers: { "content-type": "application/json" } }),
    ...(body !== undefined && { body: JSON.stringify(body) }),
  });
  return answer as Reply<Name>;
}

/** The URL of a route, for streams. */
export function addressOf<Name extends RouteName>(name: Name, input: Input<Name>): string {
  const { params, query } = input as LooseInput;
  const [, path = ""] = ADDRESSES[name].split(" ");
  return fill(path, params) + search(query);
}

export async function errorOf(response: Response): Promise<ApiError> {
  if (response.status === 401) onSignedOut();
  const body = (await response.json().catch(() => undefined)) as ErrorBody | undefined;
  const { code = "INTERNAL", message = `the server answered ${response.status}` } =
    body?.error ?? {};
  return new ApiError({ status: response.status, code, message });
}

interface LooseInput {
  params?: Record<string, unknown>;
  query?: Record<string, unknown>;
  body?: unknown;
}

async function exchange(url: string, init: RequestInit): Promise<unknown> {
  const response = await fetch(url, init).catch((error: unknown) => {
    const message = isTimeout(error)
      ? `no response within ${TIME_LIMIT_MS / 1_000} s; the request may still take effect`
      : "the server does not respond";
    throw new ApiError({ status: 0, code: "UNREACHABLE", message });
  });
  if (!response.ok) throw await errorOf(response);
  return response.status === 204 ? undefined : response.json();
}

const isTimeout = (error: unknown): boolean =>
  error instanceof DOMException && error.name === "TimeoutError";

/** Encodes every value, so that it cannot add path segments. */
function fill(path: string, params: Record<string, unknown> = {}): string {
  return path.replace(/:(\w+)/g, (_, name: string) => encodeURIComponent(String(params[name])));
}

function search(query: Record<string, unknown> = {}): string {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== "");
  const text = new URLSearchParams(
    given.map(([name, value]): [string, string] => [name, String(value)]),
  ).toString();
  return text && `?${text}`;
}
