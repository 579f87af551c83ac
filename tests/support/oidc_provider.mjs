// An OpenID provider for the tests: panva's oidc-provider with a login form of one field pair and no consent page.
// Arguments: the folder that has node_modules. Prints "ready PORT" when it answers. Ends with its standard input.
import { createServer } from "node:http";
import { pathToFileURL } from "node:url";

const { Provider } = await import(pathToFileURL(`${process.argv[2]}/node_modules/oidc-provider/lib/index.js`));
const people = { alice: ["data-team"], bob: ["orders-team"], carol: ["admins"], dave: [] };
const server = createServer();
await new Promise((done) => server.listen(0, "127.0.0.1", done));
const issuer = `http://127.0.0.1:${server.address().port}`;
const common = { grant_types: ["authorization_code", "refresh_token"], response_types: ["code"] };
let clients = null;

function provider() {
  const made = new Provider(issuer, {
    clients,
    claims: { openid: ["sub"], groups: ["groups"] },
    scopes: ["openid", "offline_access"],
    conformIdTokenClaims: false,
    findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id, groups: people[id] ?? [] }) }),
    cookies: { keys: ["of the tests alone"] },
    features: { devInteractions: { enabled: false }, rpInitiatedLogout: { enabled: true } },
    interactions: { url: (_, interaction) => `/interaction/${interaction.uid}` },
    issueRefreshToken: async (_, client) => client.grantTypeAllowed("refresh_token"),
    pkce: { required: () => true },
    ttl: { AccessToken: 600, AuthorizationCode: 60, IdToken: 600, RefreshToken: 3600, Interaction: 600, Session: 3600, Grant: 3600 },
  });
  return made;
}

async function body(request) {
  let text = "";
  for await (const part of request) text += part;
  return new URLSearchParams(text);
}

async function interact(oidc, request, response) {
  const details = await oidc.interactionDetails(request, response);
  if (request.method === "GET" && details.prompt.name === "login") {
    response.setHeader("content-type", "text/html");
    response.end(`<!DOCTYPE html><title>Provider</title><form method="post"><label>Account <input name="login"></label><button>Sign in</button></form>`);
    return;
  }
  let login = details.session?.accountId;
  if (request.method === "POST") login = (await body(request)).get("login");
  if (!(login in people)) {
    await oidc.interactionFinished(request, response, { error: "access_denied", error_description: "no such account" });
    return;
  }
  const grant = new oidc.Grant({ accountId: login, clientId: details.params.client_id });
  grant.addOIDCScope(details.params.scope);
  const result = { login: { accountId: login }, consent: { grantId: await grant.save() } };
  await oidc.interactionFinished(request, response, result, { mergeWithLastSubmission: false });
}

let oidc = null;
server.on("request", async (request, response) => {
  try {
    const url = new URL(request.url, issuer);
    if (url.pathname === "/control/client") {
      // Who may come, and where they are sent back to: the console's port is known after it was started.
      const home = url.searchParams.get("home");
      clients = [
        { ...common, client_id: "ottla-console", client_secret: "s e&c:ret", redirect_uris: [`${home}/oidc/callback`], post_logout_redirect_uris: [`${home}/login`] },
        { ...common, client_id: "public", token_endpoint_auth_method: "none", redirect_uris: [`${home}/oidc/callback`], post_logout_redirect_uris: [`${home}/login`] },
      ];
      oidc = provider();
      response.end("ok");
    } else if (url.pathname === "/control/groups") {
      people[url.searchParams.get("user")] = url.searchParams.getAll("group");
      response.end("ok");
    } else if (url.pathname.startsWith("/interaction/")) {
      await interact(oidc, request, response);
    } else {
      await oidc.callback()(request, response);
    }
  } catch (error) {
    response.statusCode = 500;
    response.end(String(error));
  }
});
process.stdin.on("end", () => process.exit(0)).resume();
console.log(`ready ${server.address().port}`);
