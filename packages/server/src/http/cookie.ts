/** The console's token, where no script of a page can read it. */
const NAME = "tenure_token";
/** Only the API reads it. Every instance knows the same tokens, so none has to remember who signed in. */
const PATH = "/api/v1";
const AGE_MAX_SECONDS = 12 * 3_600;

export function cookieWith(token: string, { secure }: { secure: boolean }): string {
  // A token may hold what a cookie may not.
  const value = Buffer.from(token, "utf8").toString("base64url");
  return cookie(value, AGE_MAX_SECONDS, secure);
}

export function endedCookie({ secure }: { secure: boolean }): string {
  return cookie("", 0, secure);
}

export function tokenInCookie(header: string | undefined): string | undefined {
  const pairs = (header ?? "").split(";").map((pair) => pair.trim());
  const value = pairs.find((pair) => pair.startsWith(`${NAME}=`))?.slice(NAME.length + 1);
  return value ? Buffer.from(value, "base64url").toString("utf8") : undefined;
}

function cookie(value: string, ageMaxSeconds: number, secure: boolean): string {
  const flags = ["HttpOnly", "SameSite=Strict", ...(secure ? ["Secure"] : [])];
  return [`${NAME}=${value}`, `Path=${PATH}`, `Max-Age=${ageMaxSeconds}`, ...flags].join("; ");
}
