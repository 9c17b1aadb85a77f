// An identity provider for the tests of the console: oidc-provider with two people, whose login form takes any password.
// Arguments: its port, the address of the console. With `late`, it signs tokens whose hour is over.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
const [port, client, late] = process.argv.slice(2);
const place = createRequire(process.cwd() + "/").resolve("oidc-provider");
const { default: Provider } = await import(pathToFileURL(place).href);
const issuer = `http://127.0.0.1:${port}`;
const provider = new Provider(issuer, {
  clients: [
    {
      client_id: "console",
      client_secret: "a secret/with+signs",
      redirect_uris: [`${client}/login/oidc/back`],
      post_logout_redirect_uris: [`${client}/login`],
    },
  ],
  pkce: { required: () => true },
  conformIdTokenClaims: false,
  cookies: { keys: ["a key of a test"] },
  claims: { profile: ["preferred_username"], groups: ["groups"] },
  features: { devInteractions: { enabled: true }, rpInitiatedLogout: { enabled: true } },
  findAccount: (_, id) => ({
    accountId: id,
    claims: () => ({ sub: id, preferred_username: id, groups: id === "anna" ? ["kafka-ops"] : ["guests"] }),
  }),
});
const now = Date.now;
if (late) {
  provider.use(async (ctx, next) => {
    if (ctx.path === "/token" && ctx.method === "POST") Date.now = () => now() - 7200e3;
    try {
      await next();
    } finally {
      Date.now = now;
    }
  });
}
provider.listen(Number(port), "127.0.0.1", () => console.log(`ready ${issuer}`));
