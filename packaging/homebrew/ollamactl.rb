# A sketch: never built nor installed. The archive is the sdist of a release; resources are written by
# `brew update-python-resources ollamactl`.
class Ollamactl < Formula
  include Language::Python::Virtualenv

  desc "Changes the settings of an Ollama host and proves that the change took"
  homepage "https://ollamactl.invalid"
  url "https://ollamactl.invalid/ollamactl-0.1.0.tar.gz"
  sha256 "0000000000000000000000000000000000000000000000000000000000000000"
  license "Apache-2.0"

  depends_on "python@3.13"

  def install
    virtualenv_install_with_resources
    generate_completions_from_executable(bin/"ollamactl", shells: [:bash, :zsh, :fish],
                                         shell_parameter_format: :click)
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/ollamactl --version")
  end
end
