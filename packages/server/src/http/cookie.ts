/** The console's session, where no script of a page can read it. */
const NAME = "tenure_session";
/** A browser takes a cookie of this prefix only over TLS, from this host itself, and for all of its paths. */
const TLS_PREFIX = "__Host-";
const OURS = /^(__Host-)?tenure_session(_\d{1,5})?$/;
/** Up to 0.1.0 the cookie held the token itself. It is never read, and leaves the browser at a sign-out. */
const FORMER_NAME = "tenure_token";
/** Only the API reads it. */
const PATH = "/api/v1";
/** Of the sessions in one request. A browser has one for each port of a host that it signed in at. */
const SESSIONS_READ_MAX = 8;

/** How the browser reached this server. */
export interface CookieScope {
  /** By TLS. */
  secure: boolean;
  /** The `Host` header: its port is part of the name, or servers on two ports of a host would overwrite each other's. */
  host: string | undefined;
}

export function sessionCookie(id: string, ageMaxSeconds: number, scope: CookieScope): string {
  return cookie(nameFor(scope), id, ageMaxSeconds);
}

/** Takes every session of ours, and the token that an instance of 0.1.0 left, out of the browser. */
export function endedCookies(header: string | undefined): string[] {
  const names = pairsIn(header).map(([name]) => name);
  const ours = names.filter((name) => OURS.test(name) || name === FORMER_NAME);
  return [...new Set(ours)].map((name) => cookie(name, "", 0));
}

/** The ids of sessions in a `Cookie` header: first the one that this server gave under the port it is asked at. */
export function sessionIdsIn(header: string | undefined, host: string | undefined): string[] {
  const own = [true, false].map((secure) => nameFor({ secure, host }));
  const found = pairsIn(header).filter(([name]) => OURS.test(name));
  const first = own.flatMap((name) => found.filter(([each]) => each === name));
  const ids = [...first, ...found].map(([, value]) => value);
  return [...new Set(ids)].slice(0, SESSIONS_READ_MAX);
}

function nameFor({ secure, host }: CookieScope): string {
  const port = /:(\d{1,5})$/.exec(host ?? "")?.[1];
  return `${secure ? TLS_PREFIX : ""}${NAME}${port === undefined ? "" : `_${port}`}`;
}

function pairsIn(header: string | undefined): [string, string][] {
  return (header ?? "").split(";").flatMap((pair): [string, string][] => {
    const [, name, value] = /^\s*([^=\s]+)=(\S*)\s*$/.exec(pair) ?? [];
    return name === undefined || value === undefined ? [] : [[name, value]];
  });
}

function cookie(name: string, value: string, ageMaxSeconds: number): string {
  const isSecure = name.startsWith(TLS_PREFIX);
  return [
    `${name}=${value}`,
    `Path=${isSecure ? "/" : PATH}`,
    `Max-Age=${ageMaxSeconds}`,
    "HttpOnly",
    "SameSite=Strict",
    ...(isSecure ? ["Secure"] : []),
  ].join("; ");
}
