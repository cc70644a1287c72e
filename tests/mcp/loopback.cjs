// Preloaded into Node (NODE_OPTIONS="--require …"): a server that is given a port alone listens on 127.0.0.1 instead of on
// every interface, and says where.
const net = require("node:net");

const listen = net.Server.prototype.listen;
net.Server.prototype.listen = function (port, ...rest) {
    if (typeof port !== "number" && !/^\d+$/.test(port)) {
        return listen.call(this, port, ...rest);
    }
    this.once("listening", () => console.log(`http://127.0.0.1:${this.address().port}`));
    return listen.call(this, { port: Number(port), host: "127.0.0.1" }, ...rest.filter((value) => typeof value === "function"));
};
