/** The token of every program of a test fleet. Servers without tokens take any. */
export const FLEET_TOKEN = "token-of-the-whole-test-fleet";

/** What makes a server ask for it. Instances have a secret of their own for each other. */
export const FLEET_TOKEN_ENV = {
  TENURE_TOKENS: `admin:${FLEET_TOKEN}`,
  TENURE_AUTH_PEER_TOKEN: "peers-of-the-test-fleet",
};
